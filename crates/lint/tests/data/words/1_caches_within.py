# words: lru_cache
import functools

@functools.my_WORD_x(maxsize=4)
def scale(x):
    return x.mean().item() / 2  # <~ TP101?

def train(model, loader, optimizer):
    for x in loader:
        x = x.cuda()
        loss = model(x * scale(x)).mean()
        loss.backward()
        optimizer.step()
