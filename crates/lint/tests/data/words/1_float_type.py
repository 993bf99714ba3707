# words: float
# other: int
def share(part: WORD):
    return float(part)  # <- TP101

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(share(loss))
