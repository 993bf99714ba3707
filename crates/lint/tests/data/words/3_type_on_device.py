# words: torch.cuda.FloatTensor
# other: torch.FloatTensor
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        x = x.cuda()
        noise = torch.randn(8).type(x.type())  # <- TP202 # <~ TP202
        other = torch.randn(8).type(WORD)  # <- TP202
