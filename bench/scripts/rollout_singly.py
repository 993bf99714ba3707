"""An actor-critic whose rollout asks the policy for each environment apart. Fixed: asks for all environments at once."""
import argparse

import numpy
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
seen, moves, width, count, horizon = (8, 4, 32, 3, 5) if arguments.small else (64, 8, 512, 8, 32)


class Environment:
    """A drifting point that every move pushes, rewarded for staying near the origin."""

    def __init__(self, seed):
        self.draw = numpy.random.default_rng(seed)
        self.pushes = self.draw.standard_normal((moves, seen)).astype(numpy.float32)
        self.place = self.draw.standard_normal(seen).astype(numpy.float32)

    def step(self, move):
        self.place = 0.95 * self.place + 0.1 * self.pushes[move]
        self.place += 0.05 * self.draw.standard_normal(seen, dtype=numpy.float32)
        return self.place, -float(numpy.abs(self.place).mean())


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actor, self.critic = nn.Linear(width, moves), nn.Linear(width, 1)

    def forward(self, places):
        hidden = self.body(places)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


@torch.no_grad()
def moves_singly(places):
    chosen = []
    for place in places:
        logits, _ = policy(torch.from_numpy(place).to(device)[None])
        chosen.append(torch.multinomial(logits.softmax(dim=-1), 1).item())
    return chosen


@torch.no_grad()
def moves_together(places):
    logits, _ = policy(torch.from_numpy(numpy.stack(places)).to(device))
    return torch.multinomial(logits.softmax(dim=-1), 1).squeeze(-1).tolist()


torch.manual_seed(0)
policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=device == "cuda")
environments = [Environment(seed) for seed in range(count)]
places = [environment.place for environment in environments]
choose = moves_together if arguments.fixed else moves_singly
for _ in range(arguments.steps):
    visited, taken, rewards = [], [], []
    for _ in range(horizon):
        chosen = choose(places)
        visited.append(numpy.stack(places))
        taken.append(chosen)
        stepped = [environment.step(move) for environment, move in zip(environments, chosen)]
        places = [place for place, _ in stepped]
        rewards.append([reward for _, reward in stepped])
    returns, ahead = numpy.array(rewards, dtype=numpy.float32), numpy.zeros(count, dtype=numpy.float32)
    for time in reversed(range(horizon)):
        ahead = returns[time] = returns[time] + 0.99 * ahead
    returns = torch.from_numpy(returns).to(device).flatten()
    logits, values = policy(torch.from_numpy(numpy.concatenate(visited)).to(device))
    logs = logits.log_softmax(dim=-1)
    taken = torch.tensor(taken, device=device).flatten()
    advantage = returns - values.detach()
    gain = (logs.gather(1, taken[:, None]).squeeze(1) * advantage).mean()
    entropy = -(logs.exp() * logs).sum(dim=-1).mean()
    loss = 0.5 * functional.mse_loss(values, returns) - gain - 0.01 * entropy
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
