# words: scale
import torch


def train(engine, loader, optimizer, scaler):
    for x in loader:
        loss = engine.run(x)
        scaler.WORD(loss).backward()
        scaler.step(optimizer)
        print(loss)  # <- TP103
    torch.cuda.synchronize()
