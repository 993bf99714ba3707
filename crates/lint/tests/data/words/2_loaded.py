# words: checkpoint, ckpt, config, model, pretrained, shard, shards, state, weights
import torch


def read_token_WORD(x):
    return x.sum().item()  # <~ TP101


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        total = read_token_WORD(x)
