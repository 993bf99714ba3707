"""A compiled diffusion transformer in fp16 whose averaged weights are kept one by one. Fixed: averaged in one call."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, length = (2, 64, 4, 2, 16) if arguments.small else (28, 384, 6, 64, 256)
DECAY = 0.999


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x, time):
        b, s, _ = x.shape
        shift, scale, gate, shift_after, scale_after, gate_after = self.modulation(time)[:, None].chunk(6, dim=-1)
        inner = self.norm(x) * (1 + scale) + shift
        q, k, v = self.qkv(inner).view(b, s, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + gate * self.out(mixed.transpose(1, 2).reshape(b, s, width))
        inner = self.norm(x) * (1 + scale_after) + shift_after
        return x + gate_after * self.down(functional.gelu(self.up(inner), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.back = nn.Linear(16, width), nn.Linear(width, 16)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x, time):
        x, time = self.patches(x), self.time(time)
        for block in self.blocks:
            x = block(x, time)
        return self.back(x)


torch.manual_seed(0)
model = Model().to(device)
for block in model.blocks:
    block.compile()
average = {name: value.detach().clone() for name, value in model.named_parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler(device, enabled=has_gpu)
latents = torch.randn(4, batch, length, 16, device=device)
for step in range(arguments.steps):
    clean = latents[step % 4]
    noise, time = torch.randn_like(clean), torch.rand(batch, 1, device=device)
    noisy = clean + time[:, None] * (noise - clean)
    with torch.autocast(device, torch.float16 if has_gpu else torch.bfloat16, enabled=has_gpu):
        loss = functional.mse_loss(model(noisy, time).float(), noise - clean)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        if arguments.fixed:
            torch._foreach_lerp_(list(average.values()), list(model.parameters()), 1 - DECAY)
        else:
            for name, value in model.named_parameters():
                average[name] = DECAY * average[name] + (1 - DECAY) * value
