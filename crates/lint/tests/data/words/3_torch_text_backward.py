# words: backward
def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        loss.WORD()
        rows.append(loss.item())  # <- TP101
