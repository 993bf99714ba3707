# words: base.LossCallback, base.LossHook
# other: base.quux
import base
import torch

class Shown(WORD):
    def on_batch_end(self, loss):
        self.size = loss.cuda().item()  # <- TP101?
