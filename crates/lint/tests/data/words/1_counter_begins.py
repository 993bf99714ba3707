# words: batch_i, i_batch, batch_num, iter, ni, step, update
def train(model, loader, optimizer):
    for WORD_x, x in enumerate(loader):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if WORD_x == 0:
            print(loss.item())  # <~ TP101?
