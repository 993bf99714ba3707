# words: format
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        text = "loss {}".WORD(loss)  # <- TP103
