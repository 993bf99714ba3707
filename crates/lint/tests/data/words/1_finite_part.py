# words: finite, infinite, isfinite, isnan, nonfinite
def train(model, loader, optimizer):
    for x in loader:
        losses = model(x.cuda())
        losses.mean().backward()
        optimizer.step()
        for part in losses:
            if my_WORD_x(part.item()):  # <- TP101? # <~ TP101
                continue
