# words: bernoulli, multinomial
import torch

def train(model, loader, optimizer, state):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        drawn = torch.WORD(state.pop("shares"))
        print(float(drawn))  # <~ TP101
