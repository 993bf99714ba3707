# words: prepare, prepare_data_loader, prepare_model, setup, setup_dataloaders, unwrap_model
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        loss = self.body(x).mean()
        return loss, x.size(0)

def train(loader, optimizer, fabric):
    net = fabric.WORD(Net().cuda())
    for batch in loader:
        loss, count = net(batch.cuda())
        print(count)  # <~ TP103
        loss.backward()
        optimizer.step()
