"""Methods that a trainer of a library calls at every step, also where evaluation calls them too."""

import torch
from mmengine.hooks import Hook
from transformers import Trainer, TrainerCallback


class ContrastiveTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        loss = outputs.loss
        self.seen.append(loss.detach().item())  # <- TP101
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only):
        with torch.no_grad():
            return self.compute_loss(model, inputs, return_outputs=True)


class Watch(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.norm = model.head.weight.norm().item()  # <- TP101
        if state.global_step == self.last_step:
            self.first = model.head.weight.mean().item()

    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        self.mean = model.head.weight.mean().item()


class LossHook(Hook):
    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.last = outputs["loss"].detach().item()  # <- TP101

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.last = outputs["loss"].detach().item()
