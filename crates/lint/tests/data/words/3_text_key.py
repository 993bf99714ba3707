# words: caption, file, filename, name, path, prompt, sentence, split, text, type, url
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch = x.cuda()
        print(batch["my_WORD"])  # <~ TP103
