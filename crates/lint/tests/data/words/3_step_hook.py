# words: after_iter, after_train_iter, before_iter, before_train_iter, on_after_backward, on_batch_begin, on_batch_end, on_before_backward, on_before_optimizer_step, on_before_zero_grad, on_optimizer_step, on_pre_optimizer_step, on_step_begin, on_step_end, on_substep_end, on_train_batch_begin
import torch
from runner import Callback


class Meter(Callback):
    def WORD(self, runner, loss):
        self.rows.append(loss.item())  # <- TP101
