# words: cpu
def train(model, loader, optimizer):
    history = []
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        history.append(loss.to("WORD"))  # <- TP102
