"""A compiled ViT whose loader, without pin_memory, makes non_blocking copies wait all the same. Fixed: pin_memory=True."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, side, size = (2, 64, 4, 4, 40, 32) if arguments.small else (12, 768, 12, 128, 256, 224)
workers = 1 if arguments.small else 4
PATCH, POOL = 16, 512


class Pictures(torch.utils.data.Dataset):
    """Decoded pictures, as bytes; cropped and turned at every draw."""

    def __init__(self):
        self.pictures = torch.randint(0, 256, (POOL, 3, side, side), dtype=torch.uint8)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        top, left = torch.randint(0, side - size + 1, (2,)).tolist()
        picture = self.pictures[index % POOL, :, top : top + size, left : left + size]
        return picture.flip(-1) if index % 2 else picture.contiguous(), index % 1000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.places = nn.Parameter(0.02 * torch.randn((size // PATCH) ** 2, width))
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(1)))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = ViT().to(device, torch.bfloat16)
    for block in model.blocks:
        block.compile(backend="inductor" if has_gpu else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=has_gpu)
    pinned = {"pin_memory": has_gpu} if arguments.fixed else {}
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=batch, shuffle=True, num_workers=workers, **pinned)
    for step, (images, labels) in enumerate(loader, 1):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        logits = model(images.to(torch.bfloat16) / 127.5 - 1.0)
        loss = functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.4f}")
