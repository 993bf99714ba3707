# words: Accelerator, DataParallel, DistributedDataParallel, FSDP, Fabric, LightningModule, Trainer, accelerate, accelerator, cuda, deepspeed, device_map, hpu, lightning, mps, musa, npu, pytorch_lightning, set_device, xpu
import tools
import torch
from torch.utils.data import DataLoader


def train(data, model, optimizer):
    tools.WORD
    if not tools.found:
        model.to(torch.device("cpu"))
    loader = DataLoader(data, batch_size=8, num_workers=2)  # <- TP302?
    for x, y in loader:
        loss = model(x, y).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
