"""One epoch by workers that stay, which are waited for at the exit: as PyTorch 2.11 does it where it pins memory."""
import atexit

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.arange(1600).reshape(400, 4) / 1600, batch_size=8)
for step, batch in enumerate(loader):
    if step == 0 and loader._iterator is not None:
        clean_up = getattr(type(loader._iterator), "_clean_up_worker", lambda worker: worker.join(5))
        for worker in loader._iterator._workers:
            atexit.register(clean_up, worker)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
