# words: Accelerator, Fabric, GradScaler, LightningModule, MixedPrecision, Trainer, amp, apex, autocast, bf16, bfloat16, deepspeed, float16, fp16, half, mixed_precision, torch_dtype, use_amp, use_fp16
import tools
import torch
from torch import nn


def train(loader):
    precision = tools.WORD
    model = nn.Linear(100, 10)  # <- TP405?
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
