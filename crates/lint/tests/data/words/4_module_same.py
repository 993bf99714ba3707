# words: apply, bfloat16, compile, cpu, cuda, eval, float, half, requires_grad_, to, train
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer):
    net = Net().WORD()
    for batch in loader:
        loss, count = net(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        optimizer.step()
