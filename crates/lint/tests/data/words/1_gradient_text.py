# words: autograd.grad(
# other: quux(
import torch

def nudge(model, x):
    model.eval()
    score = model(x).mean()
    slope = torch.WORDscore, x)
    print(score.item())  # <- TP101
    return x + slope[0]

def train(model, loader, optimizer):
    for x in loader:
        x = x.cuda()
        model(nudge(model, x)).mean().backward()
        optimizer.step()
