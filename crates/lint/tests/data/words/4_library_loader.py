# words: torch_geometric.ClusterLoader, torch_geometric.DataListLoader, torch_geometric.DenseDataLoader, torch_geometric.NeighborLoader
# other: torch_geometric.quux
import torch
import torch_geometric

def train(model, optimizer, graphs):
    parts = WORD(graphs, batch_size=8)
    for part in parts:
        loss = model(part.cuda())
        count = part.item()  # <~ TP101
        loss.backward()
        optimizer.step()
