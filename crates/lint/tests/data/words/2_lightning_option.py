# words: on_epoch, on_step, prog_bar, sync_dist
import torch


class Learner:
    def training_step(self, batch, batch_idx):
        loss = self.model(batch.cuda()).mean()
        self.log("loss", loss, WORD=True)  # <~ TP103
        return loss
