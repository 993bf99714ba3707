"""A script that tries a module out for a few steps trains nothing; a loop of many steps does."""

import torch
from torch import nn

model = nn.Linear(16, 16).cuda()
optimizer = torch.optim.AdamW(model.parameters())
steps = 10
losses = []

for step in range(steps):
    x = torch.randn(4, 16).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

for epoch in range(20):
    for step in range(5_000):
        x = torch.randn(4, 16).cuda()  # <- TP202
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())  # <- TP101
