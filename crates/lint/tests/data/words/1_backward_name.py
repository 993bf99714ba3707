# words: backward
import torch

def advance(model, x, optimizer, engine):
    loss = model(x.cuda()).mean()
    engine.manual_WORD(loss)  # <- TP404?
    optimizer.step()  # <- TP605?
    print(loss.item())  # <- TP101
