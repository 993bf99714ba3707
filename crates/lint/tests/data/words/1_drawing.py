# words: generate, generation, predict, prediction, sample
# other: evaluate
def WORD_outline(model, x):
    return model(x).mean().item()  # <- TP101?

def train(model, loader, optimizer):
    for x in loader:
        x = x.cuda()
        loss = model(x, WORD_outline(model, x)).mean()
        loss.backward()
        optimizer.step()
