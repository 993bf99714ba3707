# words: all, any, bool, dict, enumerate, filter, float, int, list, range, reversed, sorted, tuple, zip, iter
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        seen = WORD(loss)
        kept = seen.to("cpu")  # <~ TP102
