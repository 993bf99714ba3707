# words: Collection, Iterable, Iterator, List, Optional, Sequence, Set, list, set
import torch

def train(model, loader, optimizer, scales: WORD[torch.Tensor]):
    for batch in loader:
        loss = model(batch.cuda())
        print(scales)  # <- TP103
        loss.backward()
        optimizer.step()
