"""A branch with a backward pass of its own runs every few steps; one that only updates is the step."""
# about TP10

import torch


def train_critic(critic, generator, loader, optimizer, generator_optimizer, every=5):
    for step, real in enumerate(loader):
        real = real.cuda()
        loss = critic(real).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101
        if step % every == 0:
            generated = -critic(generator(real)).mean()
            generated.backward()
            generator_optimizer.step()
            print(generated.item())


def train_accumulating(model, loader, optimizer, every=8):
    for step, batch in enumerate(loader):
        loss = model(batch.cuda()).mean()
        loss.backward()
        if (step + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item())  # <- TP101


def train_and_show(model, loader, optimizer, wanted, every=100):
    for step, batch in enumerate(loader):
        loss = model(batch.cuda()).mean()
        loss.backward()
        optimizer.step()
        shows_now = wanted > 0 and step % every == 0
        if shows_now:
            print(loss.item())
