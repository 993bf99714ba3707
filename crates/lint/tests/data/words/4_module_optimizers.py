# words: optimizers
import torch

class Net(torch.nn.Module):
    def training_step(self, batch):
        updates = self.WORD()
        loss = self.body(batch.cuda())
        self.manual_backward(loss)
        updates.step()  # <- TP605?
