# words: Accelerator, Fabric
import tools


def train(model, loader, optimizer):
    runner = tools.WORD()
    tokens = 0
    for x, y in loader:
        loss = model(x, y).mean()
        runner.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        tokens += x.sum().item()  # <- TP101
    print(tokens)
