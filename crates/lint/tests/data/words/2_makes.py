# words: build_, create_, get_, load_, make_
import torch
import library


def train(optimizer, loader, options, writer):
    scorer = library.WORDmodel(options).to("cuda")
    for x, y in loader:
        x = x.cuda()
        loss = scorer(x).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("score", scorer(x))  # <- TP103
