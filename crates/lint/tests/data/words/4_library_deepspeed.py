# words: deepspeed.initialize
# other: deepspeed.quux
import deepspeed
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader):
    net, updates, data, plan = WORD(model=Net().cuda())
    for batch in loader:
        loss, count = net(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        updates.step()
