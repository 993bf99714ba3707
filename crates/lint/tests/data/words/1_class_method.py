# words: classmethod
class Meter:
    @WORD
    def share(cls, part, whole):
        return float(part)  # <- TP101

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(Meter.share(loss, 4))
