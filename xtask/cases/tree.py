#!/usr/bin/env python3
"""Writes the reference case of K-1's tree: what PyTorch makes of a small tree of blocks, a batch and AdamW.

    python3 xtask/cases/tree.py crates/training/tests/data/tree

Needs torch and safetensors. Hugging Face has no such model, so this file is the definition that ours is held against: a node is a
LLaMA block (RMSNorm, rotated attention with shared keys, SwiGLU), its result goes to each of its children, and the average of
theirs is what its parent sees; a leaf's result is its block's. Files are those of families.py and greedy.py.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

STEPS = 20
ADAMW = {"lr": 3e-4, "betas": (0.9, 0.999), "weight_decay": 0.01, "eps": 1e-8}
BATCH, SEQ, CLIP = 3, 20, 0.5

CONFIG = {
    "architectures": ["TreeForCausalLM"],
    # Levels differ in their number of children, so that one taken for another shows.
    "branching": [2, 3],
    "head_dim": 4,
    "hidden_act": "silu",
    "hidden_size": 16,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "model_type": "tree",
    "num_attention_heads": 4,
    "num_hidden_layers": 1 + 2 * (1 + 3),
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 61,
}


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(CONFIG["hidden_size"]))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]) * self.weight


def linear(rows, columns):
    return nn.Linear(columns, rows, bias=False)


def turned(x):
    """Pairs (i, i + half) of each head, turned by the position's angle."""
    half = CONFIG["head_dim"] // 2
    speed = CONFIG["rope_theta"] ** (-torch.arange(half).float() / half)
    angle = torch.arange(x.shape[-2]).float()[:, None] * speed
    first, second = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.shared, self.width = (CONFIG[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        d = CONFIG["hidden_size"]
        self.q_proj = linear(self.heads * self.width, d)
        self.k_proj = linear(self.shared * self.width, d)
        self.v_proj = linear(self.shared * self.width, d)
        self.o_proj = linear(d, self.heads * self.width)

    def forward(self, x):
        batch, seq, _ = x.shape
        by_head = lambda y, heads: y.view(batch, seq, heads, self.width).transpose(1, 2)
        q = turned(by_head(self.q_proj(x), self.heads))
        k = turned(by_head(self.k_proj(x), self.shared))
        v = by_head(self.v_proj(x), self.shared)
        k, v = (y.repeat_interleave(self.heads // self.shared, 1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) / self.width**0.5
        scores = scores.masked_fill(torch.ones(seq, seq).triu(1).bool(), float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, -1)
        return self.o_proj(mixed)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        d, f = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = linear(f, d), linear(f, d), linear(d, f)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(), Attention()
        self.post_attention_layernorm, self.mlp = Norm(), FeedForward()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], CONFIG["hidden_size"])
        self.layers = nn.ModuleList(Block() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = Norm()

    def subtree(self, x, branching, blocks):
        own = next(blocks)(x)
        if not branching:
            return own
        children = [self.subtree(own, branching[1:], blocks) for _ in range(branching[0])]
        return torch.stack(children).mean(0)

    def forward(self, ids):
        return self.norm(self.subtree(self.embed_tokens(ids), CONFIG["branching"], iter(self.layers)))


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.lm_head = linear(CONFIG["vocab_size"], CONFIG["hidden_size"])

    def forward(self, ids):
        return self.lm_head(self.model(ids))


def drawn():
    """Norms differ from one by a little, the rest has a spread of 0.05, as in families.py."""
    model = Tree()
    with torch.no_grad():
        for parameter in model.parameters():
            centre, spread = (1.0, 0.1) if parameter.dim() == 1 else (0.0, 0.05)
            parameter.copy_(centre + spread * torch.randn_like(parameter))
    return model


@torch.no_grad()
def greedy(model, length, new=20):
    """As greedy.py has it: tokens that follow a prompt without chance, and the smallest gap between the two largest logits."""
    prompt = torch.randint(0, CONFIG["vocab_size"], (1, length), generator=torch.Generator().manual_seed(7))
    tokens, gap = prompt, float("inf")
    for _ in range(new):
        largest = model(tokens)[0, -1].topk(2)
        gap = min(gap, (largest.values[0] - largest.values[1]).item())
        tokens = torch.cat([tokens, largest.indices[None, :1]], 1)
    return {"prompt": prompt[0].tolist(), "tokens": tokens[0, length:].tolist(), "gap": gap}


def main():
    (folder,) = sys.argv[1:]
    torch.manual_seed(19)
    torch.set_num_threads(1)
    model = drawn()
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        file.write(json.dumps(CONFIG, indent=2) + "\n")
    named = dict(model.named_parameters())
    save_file({name: one.detach().clone() for name, one in named.items()}, os.path.join(folder, "model.safetensors"))

    with open(os.path.join(folder, "greedy.json"), "w") as file:
        file.write(json.dumps([greedy(model, length) for length in (1, 40)]) + "\n")

    tokens = torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQ + 1))
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    expected = {"input_ids": ids, "targets": targets}
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for step in range(STEPS):
        logits = model(ids)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            expected["logits"] = logits.detach().clone()
            expected |= {f"grad.{name}": one.grad.clone() for name, one in named.items()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if step in (0, 4):
            expected |= {f"after{step + 1}.{name}": one.detach().clone() for name, one in named.items()}
        losses.append(loss.item())
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    case = {"optimizer": {"name": "AdamW", **ADAMW, "clip": CLIP}, "batch": BATCH, "seq": SEQ, "losses": losses}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        file.write(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
