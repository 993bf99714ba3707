"""Deep Q-learning on stored frames sent as pageable float32 from the host. Fixed: sent as pinned uint8."""
import argparse

import numpy
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
small = arguments.small
widths, batch, side, stored = ((8, 8), 8, 20, 64) if small else ((64, 128, 128), 512, 84, 8000)
ACTIONS, STACK, DISCOUNT = 18, 4, 0.99
torch.backends.cudnn.benchmark = True


class Replay:
    """Frames as they were seen, four to a state; the state that follows is the next one stored."""

    def __init__(self):
        self.draw = numpy.random.default_rng(0)
        self.frames = self.draw.integers(0, 256, (stored, STACK, side, side), dtype=numpy.uint8)
        self.room = numpy.empty((batch, STACK, side, side), dtype=numpy.uint8)
        self.actions = self.draw.integers(0, ACTIONS, stored)
        self.rewards = self.draw.integers(-1, 2, stored).astype(numpy.float32)
        self.going = (self.draw.random(stored) > 0.01).astype(numpy.float32)

    def states(self, chosen):
        return send_frames(numpy.take(self.frames, chosen, axis=0, out=self.room, mode="clip"))

    def sample(self):
        chosen = self.draw.integers(0, stored - 1, batch)
        states, after = self.states(chosen), self.states(chosen + 1)
        return states, after, send(self.actions[chosen]), send(self.rewards[chosen]), send(self.going[chosen])


def send(array):
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if has_gpu else tensor


def send_frames(frames):
    if arguments.fixed:
        frames = send(frames).float()
    else:
        frames = torch.tensor(frames, dtype=torch.float32).to(device)
    return (frames / 255).contiguous(memory_format=torch.channels_last)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(functional.relu(self.first(functional.relu(x))))


class Values(nn.Module):
    """The value of each action, from a residual network with a duelling head."""

    def __init__(self):
        super().__init__()
        parts, enter = [], STACK
        for width in widths:
            parts += [nn.Conv2d(enter, width, 3, padding=1), nn.MaxPool2d(3, 2, 1), Residual(width), Residual(width)]
            enter = width
        self.body = nn.Sequential(*parts, nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.hidden = nn.Linear(16 * enter, 512)
        self.state, self.action = nn.Linear(512, 1), nn.Linear(512, ACTIONS)

    def forward(self, states):
        x = functional.relu(self.hidden(self.body(states)))
        action = self.action(x)
        return self.state(x) + action - action.mean(1, keepdim=True)


torch.manual_seed(0)
replay = Replay()
online, target = (Values().to(device, memory_format=torch.channels_last) for _ in range(2))
target.load_state_dict(online.state_dict())
target.requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, eps=1.5e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    states, after, actions, rewards, going = replay.sample()
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        best = online(after).argmax(1, keepdim=True)
        worth = rewards + DISCOUNT * going * target(after).gather(1, best).squeeze(1).float()
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        values = online(states).gather(1, actions[:, None]).squeeze(1)
    loss = functional.smooth_l1_loss(values.float(), worth)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0:
        target.load_state_dict(online.state_dict())
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f}")
