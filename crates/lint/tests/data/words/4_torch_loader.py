# words: utils.data.DataLoader, utils.data.dataloader.DataLoader
import torch

def train(model, records, optimizer):
    loader = torch.WORD(records, batch_size=8)  # <- TP301
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
