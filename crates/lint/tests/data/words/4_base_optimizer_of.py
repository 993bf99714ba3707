# words: torch.optim.AdamW
# other: torch.optim.lr_scheduler.StepLR
import torch

class Updates(WORD):
    def step(self):
        norm = self.norm.cuda()
        self.size = norm.item()  # <- TP101?
