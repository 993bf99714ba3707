# words: cuda, dev, gpu, rank
def train(model, loader, optimizer, state, my_WORD_x):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        kept = state.pop("kept").to(my_WORD_x)
        print(float(kept))  # <- TP101
