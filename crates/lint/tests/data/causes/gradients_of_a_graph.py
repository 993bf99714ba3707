"""A captured graph writes into the gradients it was captured with: they must stay."""

import torch


def train(model, optimizer, static_input, loader):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(static_input).mean()
        loss.backward()
    for x in loader:
        optimizer.zero_grad(set_to_none=False)
        static_input.copy_(x)
        graph.replay()
        optimizer.step()
