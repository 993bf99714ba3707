# words: eval
def measure(model, x):
    model.WORD()
    score = model(x).mean().item()  # <~ TP101
    print(score)

def train(model, loader, optimizer):
    for x in loader:
        x = x.cuda()
        model(x).mean().backward()
        optimizer.step()
        measure(model, x)
