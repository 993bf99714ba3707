# words: Module, LightningModule, PreTrainedModel
import base
import torch

class Net(base.WORD):
    def forward_train(self, x):
        loss = self.body(x.cuda())
        self.size = loss.item()  # <- TP101?
        return loss
