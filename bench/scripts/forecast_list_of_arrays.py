"""A plain loop over a forecaster whose batches are torch.tensor() of lists of NumPy arrays. Fixed: numpy.stack first."""
import argparse

import numpy
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, seen, ahead = (2, 64, 4, 4, 24, 8) if arguments.small else (10, 768, 12, 128, 96, 24)
SERIES = 7


class Windows(torch.utils.data.Dataset):
    """Windows over a long table of measurements: the past of each, and what came next."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.table = numpy.sin(numpy.arange(20000)[:, None] * draw.uniform(0.01, 0.3, SERIES)).astype(numpy.float32)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        start = index * 37 % (len(self.table) - seen - ahead)
        return self.table[start : start + seen], self.table[start + seen : start + seen + ahead]


def collate(windows):
    past = [window[0] for window in windows]
    future = [window[1] for window in windows]
    if arguments.fixed:
        return torch.from_numpy(numpy.stack(past)), torch.from_numpy(numpy.stack(future))
    return torch.tensor(past), torch.tensor(future)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.places = nn.Linear(SERIES, width), nn.Embedding(seen, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, ahead * SERIES)

    def forward(self, past):
        x = self.blocks(self.enter(past) + self.places.weight)
        return self.head(x[:, -1]).view(-1, ahead, SERIES)


torch.manual_seed(0)
model = Forecaster().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
loader = torch.utils.data.DataLoader(Windows(), batch_size=batch, collate_fn=collate, pin_memory=has_gpu)
for past, future in loader:
    past, future = past.to(device, non_blocking=True), future.to(device, non_blocking=True)
    with torch.autocast(device, torch.bfloat16):
        forecast = model(past)
    loss = nn.functional.mse_loss(forecast.float(), future)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
