# words: Accelerator, accumulate, no_sync, require_backward_grad_sync, set_requires_gradient_sync
import tools
from torch.nn.parallel import DistributedDataParallel


def train(model, loader, optimizer):
    model = DistributedDataParallel(model)
    tools.WORD(model)
    for step, (x, y) in enumerate(loader):
        loss = model(x, y).mean() / 4
        loss.backward()  # <~ TP503
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
