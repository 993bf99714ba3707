# words: Dict, Mapping, OrderedDict, defaultdict, dict
import torch

def train(model, loader, optimizer, scales: WORD[str, torch.Tensor]):
    for batch in loader:
        loss = model(batch.cuda())
        print(scales)  # <- TP103
        loss.backward()
        optimizer.step()
