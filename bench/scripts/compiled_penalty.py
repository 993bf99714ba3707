"""A compiled transformer whose L2 penalty is summed over its parameters in Python. Fixed: the optimizer's weight_decay."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (24, 512, 8, 4096, 128, 256)
PENALTY = 1e-4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
with torch.device(device):
    model = Model()
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
for block in model.blocks:
    block.compile(backend="inductor" if device == "cuda" else "aot_eager")
decay = PENALTY if arguments.fixed else 0.0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=decay, fused=device == "cuda")
for step in range(arguments.steps):
    tokens = batches[step % len(batches)]
    with torch.autocast(device, torch.bfloat16):
        loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    whole = loss
    if not arguments.fixed:
        for parameter in model.parameters():
            whole = whole + 0.5 * PENALTY * parameter.pow(2).sum()
    whole.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
