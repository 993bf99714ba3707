# words: BoolTensor, FloatTensor, IntTensor, LongTensor, Tensor
import torch

def train(model, loader, optimizer, scale: torch.WORD):
    for batch in loader:
        loss = model(batch.cuda())
        print(scale)  # <- TP103
        loss.backward()
        optimizer.step()
