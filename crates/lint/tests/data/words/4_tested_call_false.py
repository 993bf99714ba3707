# words: is_grad_enabled, isfinite
import torch

def train(model, loader, optimizer, others):
    for batch in loader:
        loss = model(batch.cuda())
        if not others.WORD(batch):
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
