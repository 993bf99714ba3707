# words: inf, isinf, nan
def train(model, loader, optimizer):
    for x in loader:
        losses = model(x.cuda())
        losses.mean().backward()
        optimizer.step()
        for part in losses:
            if WORD(part.item()):  # <- TP101? # <~ TP101
                continue
