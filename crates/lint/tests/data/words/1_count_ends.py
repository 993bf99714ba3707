# words: seqlen
def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        maxWORD = loss * 2
        total += maxWORD  # <~ TP205
