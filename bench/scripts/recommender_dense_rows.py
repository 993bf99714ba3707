"""A plain recommender whose embedding table gets a dense gradient for a few used rows. Fixed: a sparse gradient."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
rows, width, features, numbers, inner, batch = (
    (2600, 16, 26, 16, 64, 32) if arguments.small else (10_400_000, 128, 26, 16, 2048, 16384)
)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        # One table for all features, each with its own range of rows.
        self.table = nn.Embedding(rows, width, sparse=arguments.fixed)
        self.register_buffer("starts", torch.arange(features) * (rows // features))
        self.top = nn.Sequential(
            nn.Linear(features * width + numbers, inner), nn.ReLU(), nn.Linear(inner, inner // 2), nn.ReLU(), nn.Linear(inner // 2, 1)
        )

    def forward(self, dense, categories):
        found = self.table(categories + self.starts).flatten(1)
        return self.top(torch.cat([dense, found], dim=1)).squeeze(1)


torch.manual_seed(0)
with torch.device(device):
    model = Recommender()
    nn.init.normal_(model.table.weight, std=0.05)
    dense = torch.randn(4, batch, numbers)
    categories = torch.randint(0, rows // features, (4, batch, features))
    clicked = torch.randint(0, 2, (4, batch)).float()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
for step in range(arguments.steps):
    with torch.autocast(device, torch.bfloat16):
        logits = model(dense[step % 4], categories[step % 4])
    loss = functional.binary_cross_entropy_with_logits(logits.float(), clicked[step % 4])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
