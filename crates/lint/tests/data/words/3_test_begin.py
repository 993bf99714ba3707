# words: test
import torch


def WORDrun(model, x, optimizer, rows):
    loss = model(x.cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rows.append(loss.item())  # <~ TP101
