# words: abs, max, min, next, pow, round, sum
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        seen = WORD(loss)
        print(float(seen))  # <- TP101
