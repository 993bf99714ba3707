# words: data
def to_host(x):
    return x.WORD.cpu()  # <~ TP102

def train(model, loader, optimizer):
    history = []
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        history.append(to_host(loss))  # <- TP102?
