# words: Variable, as_tensor, cuda, detach, float, from_numpy, is_available, is_tensor, isinstance, long, pin_memory, tensor, to, type
import torch


def move(x, options):
    options.WORD(x)
    return x.cuda()


def train(model, loader, optimizer, options):
    for x, y in loader:
        noise = torch.randn(8, 8)  # <- TP202
        loss = model(move(x, options) + move(noise, options)).mean()
        loss.backward()
        optimizer.step()
