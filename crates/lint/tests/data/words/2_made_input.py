# words: anchor, bia, coord, embedding, grid, index, indice, label, mask, negative, noise, position, prior, query, target, time, timestep, token
import torch


def evaluate_WORDs(model, x):
    return model(x).sum().item()  # <- TP101


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        total = evaluate_WORDs(model, x)
