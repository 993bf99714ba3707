# words: nn.utils.parametrize
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer):
    net = torch.WORD(Net().cuda())
    for batch in loader:
        loss, count = net(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        optimizer.step()
