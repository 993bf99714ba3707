# words: dependencies, doc, docs, example, examples, external, notebooks, third_party, thirdparty, tutorial, tutorials, vendor
# file: WORD/step.py
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101? # <~ TP101
