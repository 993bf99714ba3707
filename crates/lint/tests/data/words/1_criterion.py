# words: criterion
def train(model, loader, optimizer, my_WORD_x):
    for x, y in loader:
        loss = my_WORD_x(model(x.cuda()), y.cuda())
        print(float(loss))  # <- TP101
        loss.backward()
        optimizer.step()
