# words: params
import torch

def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        for group in optimizer.param_groups:
            for weight in group["WORD"]:
                print(weight.item())  # <- TP107 # <~ TP101
