# words: L, N, T, bs, bsz, dim, height, length, n, n_heads, n_tokens, num_classes, num_heads, num_tokens, size, sz, width
import torch


def train(model, loader, optimizer, WORD):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        past = torch.triu(torch.ones(WORD, WORD))  # <- TP201
