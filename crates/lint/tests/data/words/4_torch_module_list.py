# words: ModuleList
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer):
    nets = torch.nn.WORD([Net().cuda() for part in range(4)])
    for batch in loader:
        for net in nets:
            loss, count = net(batch.cuda())
            print(count)  # <~ TP103
            loss.backward()
        optimizer.step()
