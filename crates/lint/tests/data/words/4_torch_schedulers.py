# words: optim.lr_scheduler.StepLR, optim.swa_utils.SWALR
# other: optim.AdamW
import torch

def train(model, loader, parts):
    plan = torch.WORD(parts)
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        plan.step()  # <~ TP605?
