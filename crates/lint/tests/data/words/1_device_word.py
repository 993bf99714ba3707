# words: device
def train(model, loader, optimizer, main_WORD):
    for x in loader:
        loss = model(x.to(main_WORD)).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101
