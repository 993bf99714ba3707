# words: models, nets, opts, parameters, params
def train(batches, optimizer, WORD):
    for x in batches:
        for one in WORD:
            loss = one.spread(x.cuda())
            loss.backward()
        optimizer.zero_grad()
        print(loss.item())  # <- TP101
