"""Accelerate over a motion diffuser that files each sample's losses by time with item(). Fixed: on the device."""
import argparse

import torch
from accelerate import Accelerator
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, batch, frames = (2, 32, 4, 4, 8) if arguments.small else (8, 512, 8, 512, 120)
JOINTS, TIMES, QUARTERS, BATCHES = 263, 1000, 4, 4


class Denoiser(nn.Module):
    """Finds the motion under the noise, frame by frame."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(JOINTS, width), nn.Linear(width, JOINTS)
        self.times, self.places = nn.Embedding(TIMES, width), nn.Parameter(0.02 * torch.randn(frames, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, noisy, times):
        return self.leave(self.body(self.enter(noisy) + self.places + self.times(times)[:, None]))


torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
device = accelerator.device
model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
model, optimizer = accelerator.prepare(model, optimizer)
generator = torch.Generator(device).manual_seed(1)
motions = torch.randn(BATCHES, batch, frames, JOINTS, generator=generator, device=device)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES, device=device), dim=0)
history = {name: [[] for _ in range(QUARTERS)] for name in ("place", "speed")}
sums, counts = torch.zeros(2, QUARTERS, device=device), torch.zeros(QUARTERS, device=device)
for step in range(1, arguments.steps + 1):
    motion = motions[step % BATCHES]
    times = torch.randint(0, TIMES, (batch,), generator=generator, device=device)
    noise = torch.randn(motion.shape, generator=generator, device=device)
    share = kept[times][:, None, None]
    found = model(share.sqrt() * motion + (1 - share).sqrt() * noise, times).float()
    place = (found - motion).square().mean((1, 2))
    speed = (found.diff(dim=1) - motion.diff(dim=1)).square().mean((1, 2))
    if arguments.fixed:
        quarter = times * QUARTERS // TIMES
        sums.index_add_(1, quarter, torch.stack([place, speed]).detach())
        counts.index_add_(0, quarter, torch.ones_like(place))
    else:
        for sample in range(batch):
            quarter = times[sample].item() * QUARTERS // TIMES
            history["place"][quarter].append(place[sample].item())
            history["speed"][quarter].append(speed[sample].item())
    accelerator.backward((place + 0.5 * speed).mean())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 40 == 0 or step == arguments.steps:
        if arguments.fixed:
            places, speeds = (sums / counts.clamp(min=1)).tolist()
        else:
            places, speeds = ([sum(part) / max(len(part), 1) for part in history[name]] for name in history)
        accelerator.print(step, *(f"{place:.3f}/{speed:.3f}" for place, speed in zip(places, speeds)))
        history = {name: [[] for _ in range(QUARTERS)] for name in history}
        sums.zero_()
        counts.zero_()
