"""What is made on the host is mended where it is made, wherever it is moved."""
# about TP2

import torch
from torch import nn


def mixed(real, fake):
    share = torch.rand(real.size(0), 1)  # <- TP202
    share = share.expand_as(real).to(real.device)
    return share * real + (1 - share) * fake


class MatchLoss(nn.Module):
    def forward(self, boxes, scores):
        places = torch.LongTensor(boxes.size(0), 4)  # <- TP202
        weights = torch.ones(scores.shape) * -1  # <- TP202
        if boxes.is_cuda:
            places = places.cuda()
            weights = weights.cuda()
        labels = torch.cat([torch.ones(4, dtype=torch.long), torch.zeros(8, dtype=torch.long)]).to(boxes.device)  # <- TP202
        gain = torch.ones(7, device=boxes.device)
        gain[2:6] = torch.tensor(boxes.shape)[[3, 2, 3, 2]]  # <- TP203
        return (scores * weights).sum() + places.sum() + labels.sum() + gain.sum()


FloatTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


class Noisy(nn.Module):
    def forward(self, x):
        drawn = torch.randn(x.size(0), 8)  # <- TP202
        drawn = drawn.type_as(x)
        other = torch.rand(x.size(0), 8).type(FloatTensor)  # <- TP202
        return x + drawn + other


def run(model, loader, device, optimizer, criterion=MatchLoss()):
    for batch in loader:
        length = batch.shape[1]
        future = torch.zeros([batch.shape[0], 24, 7]).float()  # <- TP202
        context = torch.cat([batch[:, :length, :], future], dim=1).float().to(device)
        out = model(context)
        loss = criterion(out, mixed(out, context))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
