# words: __init__
class Sample:
    def WORD(self, loss):
        self.loss = float(loss)  # <- TP101

def train(model, loader, optimizer):
    history = []
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        history.append(Sample(loss))
