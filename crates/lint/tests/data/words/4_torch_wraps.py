# words: AveragedModel, DataParallel, DistributedDataParallel, FullyShardedDataParallel, checkpoint_wrapper, compile, convert_sync_batchnorm, script
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer):
    net = torch.nn.parallel.WORD(Net().cuda())
    for batch in loader:
        loss, count = net(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        optimizer.step()
