#!/usr/bin/env python3
"""GPT-2 of 124 million parameters on one GPU: Headroom against PyTorch's compiled one, taking turns.

    python3 bench/gpt2.py --headroom target/dist/headroom --out docs/benchmarks

PyTorch: bf16 autocast, SDPA, fused AdamW, `torch.compile` (default, and with CUDA graphs). Both sides train tokens drawn at
random, with a vocabulary of 50,304 (GPT-2's, rounded up so that tensor cores take it). Writes gpt2.json and gpt2.md.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LAYERS, HEADS, VOCAB, SEQ = 768, 12, 12, 50304, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, seq, _ = x.shape
        heads = lambda y: y.view(batch, seq, HEADS, WIDTH // HEADS).transpose(1, 2)
        query, key, value = (heads(y) for y in self.qkv(self.norm_1(x)).split(WIDTH, -1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(SEQ, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, 0.0, 0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB).float(), targets.reshape(-1))


class Peer:
    def __init__(self, mode, batch):
        torch.manual_seed(42)
        model = Gpt2().cuda()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
        self.step = torch.compile(model, mode=mode)
        self.data = torch.randint(0, VOCAB, (16, batch, SEQ + 1), device="cuda")
        self.done = 0

    def take(self, steps):
        """Milliseconds per step, the host never waiting within them."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            rows = self.data[self.done % 16]
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.step(rows[:, :-1], rows[:, 1:])
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.done += 1
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / steps


def ours(headroom, batch, steps, warm, more=()):
    """Milliseconds per step of a run, its first steps left out, and its peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [headroom, "train", "--family", "gpt2", "--device", "cuda", "--precision", "bf16", "--passes", "all"]
        command += ["--hidden-dim", WIDTH, "--n-layers", LAYERS, "--n-heads", HEADS, "--intermediate-dim", 4 * WIDTH]
        command += ["--vocab-size", VOCAB, "--seq-len", SEQ, "--batch-size", batch, "--num-steps", warm + steps]
        command += ["--warmup-steps", warm, "--log-interval", 20, "--output-dir", os.path.join(folder, "run"), "--json", *more]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        summary = json.loads([line for line in done.stdout.splitlines() if line.startswith('{"summary"')][-1])["summary"]
        return 1e3 / summary["performance_summary"]["steps_per_sec"], summary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--out")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    peers = {"compile": Peer(None, arguments.batch), "graphs": Peer("reduce-overhead", arguments.batch)}
    for peer in peers.values():
        peer.take(8)
    times = {"headroom": [], **{name: [] for name in peers}}
    for _ in range(arguments.rounds):
        for name, peer in peers.items():
            times[name].append(peer.take(arguments.steps))
        times["headroom"].append(ours(os.path.abspath(arguments.headroom), arguments.batch, arguments.steps, 40)[0])
        print({name: round(all[-1], 3) for name, all in times.items()}, flush=True)
    ratios = [min(times[name][i] for name in peers) / times["headroom"][i] for i in range(arguments.rounds)]
    result = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": arguments.batch,
        "milliseconds": {name: statistics.median(all) for name, all in times.items()},
        "ratio": statistics.median(ratios), "ratios": [min(ratios), max(ratios)],
    }
    print(json.dumps(result))
    if arguments.out:
        with open(os.path.join(arguments.out, "gpt2.json"), "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
        middle = result["milliseconds"]
        with open(os.path.join(arguments.out, "gpt2.md"), "w") as file:
            file.write(
                f"# GPT-2 of 124 million parameters\n\n{result['gpu']}, PyTorch {result['torch']}, batch {arguments.batch} of {SEQ}"
                f" tokens, bf16, {arguments.rounds} rounds in turns (`python3 bench/gpt2.py`). Milliseconds per step, medians:\n\n"
                f"| Headroom | PyTorch compiled | PyTorch compiled, CUDA graphs | faster than the best of them |\n|---|---|---|---|\n"
                f"| {middle['headroom']:.2f} | {middle['compile']:.2f} | {middle['graphs']:.2f} |"
                f" {result['ratio']:.2f}× ({min(ratios):.2f} to {max(ratios):.2f}) |\n"
            )


if __name__ == "__main__":
    main()
