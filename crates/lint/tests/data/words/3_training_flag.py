# words: do_train, is_train, is_training, istrain, train, train_mode, training
import torch


def train(model, loader, optimizer, run, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run.WORD:
            rows.append(loss.item())  # <- TP101 # <~ TP101?
