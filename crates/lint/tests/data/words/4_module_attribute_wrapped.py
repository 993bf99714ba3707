# words: module
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer):
    net = torch.nn.parallel.DistributedDataParallel(Net().cuda())
    model = net.WORD
    for batch in loader:
        loss, count = model(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        optimizer.step()
