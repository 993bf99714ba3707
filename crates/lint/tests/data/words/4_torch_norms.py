# words: clip_grad_norm, clip_grad_norm_, get_total_norm, parameters_to_vector
# other: nn.utils.quux
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        norm = torch.nn.utils.WORD(model.parameters(), 1.0)
        size = norm.item()  # <- TP101
        optimizer.step()
