# words: cuda
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.to("WORD:0")).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101
