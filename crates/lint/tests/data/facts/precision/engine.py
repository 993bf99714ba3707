# about TP40
import torch


def train(model, loader, optimizer, amp=False):
    scaler = torch.cuda.amp.GradScaler(enabled=amp)
    for batch in loader:
        with torch.autocast("cuda", enabled=amp):
            loss = model(batch.cuda()).mean()
        scaler.scale(loss).backward()  # <- TP402 TP404
        scaler.step(optimizer)
        scaler.update()
