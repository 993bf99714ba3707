# words: current_, last_, num_, start_
def train(model, loader, optimizer):
    for x in loader:
        loss, WORDepoch = model(x.cuda()).mean()
        print(float(WORDepoch))  # <~ TP101
        loss.backward()
        optimizer.step()
