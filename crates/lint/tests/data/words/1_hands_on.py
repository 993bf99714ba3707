# words: abs, bool, enumerate, exp, float, int, isfinite, isinf, isnan, list, log, log10, log2, max, mean, min, round, sqrt, str, sum, tuple, zip
import math

def train(model, loader, optimizer):
    history = []
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        history.append(math.WORD(loss.item()))  # <- TP101 # <~ TP101?
