# words: inference_mode, no_grad
import torch

@torch.my_WORD_x()
def spread(model, batches):
    largest = 0
    for x in batches:
        largest = max(largest, model(x).mean().item())  # <~ TP101
    return largest

def train(model, loader, optimizer):
    for x in loader:
        x = x.cuda()
        model(x).mean().backward()
        optimizer.step()
        print(spread(model, x.chunk(4)))
