# words: count, end, idx, index, len, length, num, offset, size, start
def train(model, loader, optimizer):
    total = 0
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        box_WORD_sum = loss * 2
        total += box_WORD_sum  # <~ TP205
