# words: random
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if my_WORD_numbers.draw() < 0.1:
            rows.append(loss.item())  # <~ TP101?
