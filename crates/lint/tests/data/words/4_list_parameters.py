# words: parameters
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return self.body(x).mean()

def train(loader, optimizer):
    nets = torch.nn.ModuleList([Net() for part in range(4)])
    for batch in loader:
        loss = sum(net(batch.cuda()) for net in nets)
        loss.backward()
        for part in nets.WORD():
            size = part.grad.norm().item()  # <- TP107
        optimizer.step()
