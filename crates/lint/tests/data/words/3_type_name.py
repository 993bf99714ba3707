# words: type
import torch


def train(model, loader, optimizer, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        noise = torch.randn(8).to(my_WORD_x)  # <~ TP202
