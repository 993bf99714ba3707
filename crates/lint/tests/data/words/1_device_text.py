# words: gpu, mps, nccl, xpu
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.to("WORD")).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101
