# words: nn.utils.rnn.pad_sequence
# other: nn.utils.rnn.quux
import torch

def train(model, loader, optimizer, rows):
    for x in loader:
        losses = model(x.cuda())
        losses.sum().backward()
        optimizer.step()
        rows.append(torch.WORD([losses[:2], losses[2:]]).tolist())  # <- TP102
