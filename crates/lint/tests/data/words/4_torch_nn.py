# words: nn.Linear
import torch

def train(loader, optimizer):
    head = torch.WORD(4, 4)
    for batch in loader:
        loss = head(batch.cuda())
        print(loss)  # <- TP103
        loss.backward()
        optimizer.step()
