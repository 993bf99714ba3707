# words: gpu, local_rank
import tools
from torch.utils.data import DataLoader


def train(data, model, optimizer):
    model.to(tools.WORD)
    loader = DataLoader(data, batch_size=8, num_workers=2)  # <- TP302?
    for x, y in loader:
        loss = model(x, y).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
