# words: torch.optim.lr_scheduler.StepLR
# other: torch.optim.AdamW
import torch

class Updates(WORD):
    def step(self):
        norm = self.norm.cuda()
        self.size = norm.item()  # <~ TP101?
