# words: zero_grad
def advance(model, x, optimizer):
    optimizer.WORD()
    loss = model(x.cuda()).mean()
    loss.backward()
    print(loss.item())  # <- TP101
    return model
