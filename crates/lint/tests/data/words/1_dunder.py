# words: __
class Base:
    def advance(self, loss):
        self.WORDkeep(loss)

class Derived(Base):
    def WORDkeep(self, loss):
        self.last = loss.item()  # <~ TP101

def train(model, loader, optimizer):
    base = Base()
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        base.advance(loss)
