# words: torch_geometric.DataLoader
# other: torch_geometric.quux
import torch
import torch_geometric

def train(model, optimizer, graphs):
    parts = WORD(graphs, batch_size=8)  # <- TP301
    for part in parts:
        loss = model(part.cuda())
        loss.backward()
        optimizer.step()
