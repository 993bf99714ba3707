"""Values that only look like tensors: none of these lines reads from a device."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, layer_number, past, options):
        if layer_number > 3:
            x = x * 2
        if past.length > 0 and options.window == 4:
            x = x + 1
        name = f"block {layer_number} of {options.count}"
        out, bias = self.layer(x), options.bias
        if isinstance(out, tuple) and out:
            out = out[0]
        factor = 1.0 + 1.0 * (x.size(2) > 1)
        if isinstance(factor, torch.Tensor):
            factor = factor.item()
        if bias == None:
            return out
        return out + int(options.offset), name


class Run:
    def __init__(self, device, scheduler, config):
        self.device, self.scheduler, self.config = device, scheduler, config
        self.global_step = 0

    def train(self, model, loader, optimizer):
        for index, batch in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(batch.to(self.device), index, None, self.config).mean()
            loss.backward()
            optimizer.step()
            self.scheduler.step()
            self.global_step += 1
            rate = float(self.scheduler.get_last_lr()[0])
            print(f"{self.global_step} on {self.device}, rate {rate}, of {self.config.steps}")
            if (index // self.config.accumulate) == self.config.most_steps:
                break
