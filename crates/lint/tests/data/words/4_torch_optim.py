# words: optim.AdamW
import torch

def train(model, loader):
    updates = torch.WORD(model.parameters(), foreach=False)  # <- TP502
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        updates.step()
