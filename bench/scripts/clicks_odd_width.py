"""A cross network over clicks whose 1677 columns leave its rows unaligned. Fixed: padded to 1728 with zeros."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
crosses, width, batch, rows, deep = (2, 4, 16, 50, 16) if arguments.small else (4, 64, 32768, 10_000, 1024)
NUMBERS, KINDS, BATCHES = 13, 26, 4
columns = NUMBERS + KINDS * width
padded = -(-columns // 64) * 64 if arguments.fixed else columns


def linear(enter, leave, wide_enter, wide_leave):
    """A linear layer of the given sizes, with zeros around it where it is to be wider."""
    drawn, layer = nn.Linear(enter, leave), nn.utils.skip_init(nn.Linear, wide_enter, wide_leave)
    layer.load_state_dict({
        "weight": functional.pad(drawn.weight.detach(), (0, wide_enter - enter, 0, wide_leave - leave)),
        "bias": functional.pad(drawn.bias.detach(), (0, wide_leave - leave)),
    })
    return layer


class Clicks(nn.Module):
    """Crosses every column with every other, beside a deep part."""

    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(KINDS * rows, width)
        self.register_buffer("offsets", torch.arange(KINDS) * rows)
        self.crosses = nn.ModuleList(linear(columns, columns, padded, padded) for _ in range(crosses))
        self.deep = nn.Sequential(
            linear(columns, deep, padded, deep), nn.ReLU(), nn.Linear(deep, deep // 2), nn.ReLU()
        )
        self.from_cross, self.from_deep = linear(columns, 8, padded, 8), nn.Linear(deep // 2, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, numbers, kinds):
        embedded = self.kinds(kinds + self.offsets).flatten(1)
        dtype = torch.bfloat16 if has_gpu else torch.float32
        filler = embedded.new_zeros(len(embedded), padded - columns)
        first = torch.cat([numbers, embedded, filler], dim=1).to(dtype)
        crossed = first
        for cross in self.crosses:
            crossed = torch.addcmul(crossed, first, cross(crossed))
        return self.head(self.from_cross(crossed) + self.from_deep(self.deep(first))).squeeze(1)


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
numbers = torch.rand(BATCHES, batch, NUMBERS, generator=generator, device=device).add(1).log()
kinds = torch.randint(0, rows, (BATCHES, batch, KINDS), generator=generator, device=device)
clicked = torch.randint(0, 2, (BATCHES, batch), generator=generator, device=device).float()
model = Clicks().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(numbers[step % BATCHES], kinds[step % BATCHES])
    loss = functional.binary_cross_entropy_with_logits(scores.float(), clicked[step % BATCHES])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
