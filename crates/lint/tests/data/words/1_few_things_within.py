# words: blocks, heads, layers, losses, optim, param_groups, scalers, scheduler
def train(batches, optimizer, my_WORD_x):
    for x in batches:
        for one in my_WORD_x:
            loss = one.spread(x.cuda())
            loss.backward()
        optimizer.zero_grad()
        print(loss.item())  # <- TP101
