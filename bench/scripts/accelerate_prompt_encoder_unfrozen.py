"""Accelerate over a latent diffuser with an untrained prompt encoder left unfrozen. Fixed: requires_grad_(False)."""
import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
deep, layers, width, heads, batch, words, patches = (2, 2, 32, 4, 4, 8, 16) if small else (12, 10, 1024, 16, 48, 256, 256)
VOCABULARY, CHANNELS, TIMES = (100 if small else 32000), 16, 1000


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask, self.tell = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.leave = nn.Linear(width, width)

    def forward(self, x, context):
        q = self.ask(x).unflatten(2, (heads, -1)).transpose(1, 2)
        k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in self.tell(context).chunk(2, 2))
        return self.leave(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, crossed):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention()
        self.norm_crossed, self.crossed = (nn.LayerNorm(width), Attention()) if crossed else (None, None)
        self.norm_after = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, context=None):
        y = self.norm(x)
        x = x + self.attention(y, y)
        if self.crossed is not None:
            x = x + self.crossed(self.norm_crossed(x), context)
        return x + self.mlp(self.norm_after(x))


class PromptEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Parameter(0.02 * torch.randn(words, width))
        self.blocks, self.norm = nn.ModuleList(Block(False) for _ in range(deep)), nn.LayerNorm(width)

    def forward(self, prompt):
        x = self.words(prompt) + self.places
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(CHANNELS, width), nn.Linear(width, CHANNELS)
        self.places, self.times = nn.Parameter(0.02 * torch.randn(patches, width)), nn.Embedding(TIMES, width)
        self.blocks, self.norm = nn.ModuleList(Block(True) for _ in range(layers)), nn.LayerNorm(width)

    def forward(self, latents, times, prompt):
        x = self.enter(latents) + self.places + self.times(times)[:, None]
        for block in self.blocks:
            x = block(x, prompt)
        return self.leave(self.norm(x))


torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
device = accelerator.device
encoder = PromptEncoder().to(device, torch.bfloat16 if has_gpu else torch.float32).eval()
if arguments.fixed:
    encoder.requires_grad_(False)
model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
model, optimizer = accelerator.prepare(model, optimizer)
generator = torch.Generator(device).manual_seed(1)
prompts = torch.randint(0, VOCABULARY, (8, batch, words), generator=generator, device=device)
pictures = torch.randn(8, batch, patches, CHANNELS, generator=generator, device=device)
kept = torch.linspace(0.999, 0.01, TIMES, device=device)
for step in range(1, arguments.steps + 1):
    clean = pictures[step % 8]
    noise = torch.randn(clean.shape, generator=generator, device=device)
    times = torch.randint(0, TIMES, (batch,), generator=generator, device=device)
    share = kept[times][:, None, None]
    prompt = encoder(prompts[step % 8])
    guess = model(share.sqrt() * clean + (1 - share).sqrt() * noise, times, prompt)
    loss = functional.mse_loss(guess.float(), noise)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
