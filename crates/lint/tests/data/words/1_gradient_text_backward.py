# words: .backward(
# other: .quux(
class Tape:
    def backward(self, score):
        self.slope = score * 2

def nudge(model, x, tape: Tape):
    model.eval()
    score = model(x).mean()
    tapeWORDscore)
    print(score.item())  # <- TP101
    return x + tape.slope

def train(model, loader, optimizer):
    tape = Tape()
    for x in loader:
        x = x.cuda()
        model(nudge(model, x, tape)).mean().backward()
        optimizer.step()
