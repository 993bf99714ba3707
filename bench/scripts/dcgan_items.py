"""A DCGAN with two optimizers that reads five figures back at every step. Fixed: kept on the device, read every 50 steps."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
features, noise_width, batch = (8, 16, 4) if arguments.small else (64, 100, 256)


def widened(inputs, outputs, stride, padding):
    convolution = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(True))


def narrowed(inputs, outputs):
    convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True))


torch.manual_seed(0)
generator = nn.Sequential(
    widened(noise_width, 8 * features, 1, 0),
    widened(8 * features, 4 * features, 2, 1),
    widened(4 * features, 2 * features, 2, 1),
    widened(2 * features, features, 2, 1),
    nn.ConvTranspose2d(features, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
).to(device)
critic = nn.Sequential(
    nn.Conv2d(3, features, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, True),
    narrowed(features, 2 * features),
    narrowed(2 * features, 4 * features),
    narrowed(4 * features, 8 * features),
    nn.Conv2d(8 * features, 1, 4, 1, 0, bias=False),
    nn.Flatten(0),
).to(device)
optimizer_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()
images = torch.rand(4, batch, 3, 64, 64, device=device) * 2 - 1
real, fake = torch.ones(batch, device=device), torch.zeros(batch, device=device)
history = []


def figure(value):
    return value.detach() if arguments.fixed else value.item()


for step in range(arguments.steps):
    optimizer_critic.zero_grad(set_to_none=True)
    scores = critic(images[step % 4])
    loss_real = loss_of(scores, real)
    loss_real.backward()
    score_real = figure(scores.sigmoid().mean())
    made = generator(torch.randn(batch, noise_width, 1, 1, device=device))
    scores = critic(made.detach())
    loss_fake = loss_of(scores, fake)
    loss_fake.backward()
    score_before = figure(scores.sigmoid().mean())
    optimizer_critic.step()

    optimizer_generator.zero_grad(set_to_none=True)
    scores = critic(made)
    loss = loss_of(scores, real)
    loss.backward()
    score_after = figure(scores.sigmoid().mean())
    optimizer_generator.step()
    history.append((figure(loss_real + loss_fake), figure(loss), score_real, score_before, score_after))
    if arguments.fixed and step % 50 == 49:
        history[-50:] = torch.stack([torch.stack(row) for row in history[-50:]]).tolist()
