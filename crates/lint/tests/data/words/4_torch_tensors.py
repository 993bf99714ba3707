# words: as_tensor, frombuffer, tensor
import torch

def train(model, loader, optimizer):
    for batch in loader:
        scale = torch.WORD(batch.scale).cuda()  # <- TP203?
        loss = model(batch.x) * scale
        loss.backward()
        optimizer.step()
