"""GRPO over a compiled decoder, on-policy, that runs it once more for the old log-probabilities. Fixed: new.detach()."""
import argparse
import copy

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
backend = "inductor" if has_gpu else "aot_eager"
small = arguments.small
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 256, 8, 33) if small else (12, 1024, 16, 32768, 24, 513)
inner, PROMPT, GROUP, BETA, CLIP = 11 * width // 4, length // 4, 8, 0.04, 0.2


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(x.dtype)


def turned(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = Norm(width), Norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x, cosine, sine):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.between(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = Norm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.head.weight, std=0.02)
        half = width // heads // 2
        angles = torch.arange(length - 1)[:, None] / 10000 ** (torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, rows):
        x = self.words(rows)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.norm(x)


@torch.compile(backend=backend)
def gathered(x, weight, words):
    return functional.linear(x, weight).float().log_softmax(-1).gather(-1, words[..., None]).squeeze(-1)


def log_probabilities(model, rows):
    """A number for every word of the answers, given all before it."""
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        x = model(rows[:, :-1])
        return gathered(x[:, PROMPT - 1 :], model.head.weight, rows[:, PROMPT:])


torch.manual_seed(0)
policy = Decoder().to(device)
reference = copy.deepcopy(policy)
for block in (*policy.blocks, *reference.blocks):
    block.compile(backend=backend)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5, fused=has_gpu)
rollouts = torch.randint(0, vocabulary, (4, batch, length)).to(device)
rewards = torch.rand(4, batch // GROUP, GROUP).to(device)
ends = torch.randint(PROMPT, length - PROMPT + 1, (4, batch, 1)).to(device)
for step in range(1, arguments.steps + 1):
    pick = step % 4
    rows, reward = rollouts[pick], rewards[pick]
    kept = torch.arange(length - PROMPT, device=device) < ends[pick]
    advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).view(batch, 1)
    with torch.no_grad():
        agreed = log_probabilities(reference, rows)
        if not arguments.fixed:
            old = log_probabilities(policy, rows)
    new = log_probabilities(policy, rows)
    if arguments.fixed:
        # The policy has not moved since the rollout, so the two are the same numbers.
        old = new.detach()
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    apart = (agreed - new).exp() - (agreed - new) - 1
    loss = -((gain - BETA * apart) * kept).sum() / kept.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f} apart {apart.detach().mean().item():.6f}")
