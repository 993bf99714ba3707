# words: Batch, Data, Dict, Encoding, Graph, Input, Inputs, Tensor
import torch


def train(model, loader, optimizer, sets):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = sets.NewWORD(x).cuda()
        print(found)  # <- TP103
