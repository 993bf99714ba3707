# words: epoch, epochs, iter, iteration, iterations, step, steps
def train(model, loader, optimizer):
    for x in loader:
        last_WORD = model(x.cuda()).mean()
        print(float(last_WORD))  # <~ TP101
        last_WORD.backward()
        optimizer.step()
