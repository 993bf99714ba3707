# words: Accelerator, Fabric, LightningModule, Trainer, deepspeed
import torch
import tools


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    runner = tools.WORD
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y).mean()
        loss.backward()
        optimizer.step()  # <~ TP605?
        optimizer.zero_grad()
