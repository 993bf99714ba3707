# words: Eval, Infer, Predict, Test, Valid
class WORDX:
    def measure(self, model, x):
        return model(x).mean().item()  # <~ TP101

def train(model, loader, optimizer):
    scores = WORDX()
    for x in loader:
        x = x.cuda()
        model(x).mean().backward()
        optimizer.step()
        print(scores.measure(model, x))
