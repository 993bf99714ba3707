"""A tree of small modules: norms through a method of the nodes of a list, a fixed evaluation batch, a cumulative speed."""

import math
import time
from typing import List

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Node(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.number = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x)

    def gradient_norm(self) -> float:
        total = 0.0
        for p in self.parameters():
            if p.grad is not None:
                total += p.grad.pow(2).sum().item()  # <- TP107
        return math.sqrt(total)


class Tree(nn.Module):
    def __init__(self, width: int, count: int):
        super().__init__()
        self.all_nodes: List[Node] = []
        for number in range(count):
            node = Node(width)
            node.number = number
            self.all_nodes.append(node)

    def forward(self, x):
        length = x.size(1)
        mask = torch.triu(torch.ones(length, length, device=x.device), diagonal=1).bool()  # <- TP201
        for node in self.all_nodes:
            x = node(x)
        return x.masked_fill(mask[0, 0], 0.0)

    def norms(self) -> dict:
        found = {}
        for node in self.all_nodes:
            found[node.number] = node.gradient_norm()
        return found


class TreeTrainer:
    def __init__(self, config, data):
        self.config, self.data = config, data
        self.model = Tree(config["width"], config["count"]).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.scaler = torch.amp.GradScaler("cuda", enabled=(device.type == "cuda"))

    def train(self, steps=1000):
        batch_size = self.config.get("batch_size", 32)
        start = time.time()
        total_loss = 0.0
        for step in range(steps):
            x, y = self.data.get_batch("train", batch_size=batch_size)
            self.optimizer.zero_grad()
            with torch.amp.autocast("cuda"):
                loss = nn.functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            with torch.no_grad():
                norms = self.model.norms()
                ranked = sorted(norms.items(), key=lambda pair: pair[1], reverse=True)
                for node in self.model.all_nodes:
                    if node.number not in dict(ranked[:5]):
                        for p in node.parameters():
                            p.grad.zero_()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            total_loss += loss.item()  # <- TP101
            if step % 100 == 0:
                elapsed = time.time() - start
                speed = (step + 1) / elapsed if elapsed > 0 else 0  # <- TP606
                print(f"{step}: {total_loss / (step + 1):.4f}, {speed:.1f} steps per second")


def evaluate(trainer, data):
    trainer.model.eval()
    total = 0.0
    with torch.no_grad():
        for _ in range(50):
            x, y = data.get_batch("val", batch_size=32)  # <- TP604
            total += nn.functional.cross_entropy(trainer.model(x), y).item()
    trainer.model.train()
    return total


def main(config, data):
    config["batch_size"] = 128
    trainer = TreeTrainer(config, data)
    trainer.train()
    evaluate(trainer, data)
