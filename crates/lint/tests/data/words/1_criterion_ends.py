# words: loss_fn, loss_func, loss_function
def train(model, loader, optimizer, my_WORD):
    for x, y in loader:
        loss = my_WORD(model(x.cuda()), y.cuda())
        print(float(loss))  # <- TP101
        loss.backward()
        optimizer.step()
