"""What is done for every move of a game is done all the time."""
# about TP20 TP606

import time

import numpy as np
import torch


def play(agent, envs, optimizer, device, updates, moves):
    start = time.time()
    seen = 0
    state = torch.Tensor(envs.reset()).to(device)
    for update in range(updates):
        for move in range(moves):
            seen += 1
            action = agent(state)
            observed, reward, done = envs.step(action)
            reward = torch.tensor(reward).to(device)  # <- TP203
            state = torch.Tensor(observed).to(device)  # <- TP203
        for minibatch in np.array_split(np.arange(moves), 4):
            loss = agent(state).mean() + reward.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("moves per second", int(seen / (time.time() - start)))  # <- TP606


class Slow:
    def choose(self, state):
        return self.net(torch.FloatTensor(state).cuda())  # <- TP203


class Fast:
    def choose(self, state):
        return self.net(torch.FloatTensor(state).cuda())  # <- TP203


def play_one_of(name, env, model, loss_of, optimizer, moves):
    if name == "slow":
        player = Slow()
    else:
        player = Fast()
    state = env.reset()
    for move in range(moves):
        state = env.step(player.choose(state))
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
