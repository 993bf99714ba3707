# words: training_step
def train(engine, loader, rows):
    for x in loader:
        loss = engine.WORD(x.cuda())
        rows.append(loss.item())  # <- TP101
