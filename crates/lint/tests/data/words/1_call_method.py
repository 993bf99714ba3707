# words: __call__
class Meter:
    def WORD(self, x):
        self.last = x.mean().item()  # <- TP101

def train(model, loader, optimizer):
    meter = Meter()
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        meter(loss)
