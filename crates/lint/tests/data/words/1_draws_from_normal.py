# words: normal
# other: rand
import torch

def train(model, loader, optimizer):
    for x in loader:
        out = model(x.cuda()).mean()
        out.backward()
        optimizer.step()
        drawn = torch.WORD(out, 1.0)
        print(float(drawn))  # <- TP101
