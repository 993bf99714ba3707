# words: GradScaler, ShardedGradScaler
import torch

def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scaling = torch.amp.WORD()
    for batch in loader:
        loss = model(batch.cuda())
        scaling.scale(loss).backward()
        scaling.step(optimizer)  # <- TP108
        scaling.update()
