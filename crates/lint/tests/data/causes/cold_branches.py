"""Code that a step reaches now and then, or never by default."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--check-weights", action="store_true")
parser.add_argument("--probe", type=int, default=0)
args = parser.parse_args()
device = torch.device("cuda")


def load_next_shard(path):
    with open(path, "rb") as file:
        return torch.frombuffer(file.read(), dtype=torch.int32).to(device)


def save_weights(model, path):
    torch.save({name: value.cpu() for name, value in model.named_parameters()}, path)


def warmup(model, x):
    return model(x).sum().item()


def train(model, optimizer, shards, steps):
    tokens, at = load_next_shard(shards[0]), 0
    for step in range(steps):
        if at + 1024 > tokens.numel():
            tokens, at = load_next_shard(shards[step]), 0
            warmup(model, tokens[:8])
        loss = model(tokens[at : at + 1024]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        at += 1024
        if args.check_weights:
            print(model.head.weight.norm().item())
        if args.probe > 0:
            print(loss.item())
        if loss.device.type in ("mps", "npu"):
            loss = loss.cpu()
        if step % 100 == 0 and torch.isnan(loss).any():
            save_weights(model, "last.pt")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            pass
