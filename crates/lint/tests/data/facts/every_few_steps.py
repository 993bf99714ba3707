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


def train_by_turns(critic, generator, loader, optimizer, generator_optimizer):
    for step, real in enumerate(loader):
        real = real.cuda()
        if step % 2 == 0:
            loss = critic(real).mean()
            loss.backward()
            optimizer.step()
            print(loss.item())  # <- TP101
        else:
            loss = generator(real).mean()
            loss.backward()
            generator_optimizer.step()
            print(loss.item())  # <- TP101


def train_with_a_second_pass(model, loader, optimizer, twice=False):
    for batch in loader:
        loss = model(batch.cuda()).mean()
        if twice:
            other = model(batch.cuda()).square().mean()
            other.backward()
            print(other.item())
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101
