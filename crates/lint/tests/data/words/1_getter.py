# words: get
class Trainer:
    def train(self, loader, optimizer):
        for x in loader:
            out = self.WORD_encoder(x.cuda())
            print(float(out))  # <~ TP101
            out.backward()
            optimizer.step()
