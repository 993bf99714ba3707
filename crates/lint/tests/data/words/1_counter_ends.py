# words: batch_i, batch_id, batch_idx, batch_index, batch_num, i_batch, iter, iters, ni, step, steps, update
def train(model, loader, optimizer):
    for my_WORD, x in enumerate(loader):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if my_WORD == 0:
            print(loss.item())  # <~ TP101?
