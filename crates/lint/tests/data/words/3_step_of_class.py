# words: on_train_batch_end, on_train_batch_start, optimizer_step, training_step
import torch


class Module:
    def WORD(self, batch):
        level = batch.mean()
        print(level)  # <- TP103
