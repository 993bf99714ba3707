# words: b, bi, count, counter, i, idx, ii, index, it, j, k, n, t
def train(model, loader, optimizer):
    for WORD, x in enumerate(loader):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if WORD == 0:
            print(loss.item())  # <~ TP101?
