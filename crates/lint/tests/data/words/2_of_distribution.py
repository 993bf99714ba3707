# words: DDP, DistributedDataParallel
import tools


def train(model, loader, optimizer):
    model = tools.WORD(model)
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        loss = model(x, y).mean() / 4
        loss.backward()  # <- TP503
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
