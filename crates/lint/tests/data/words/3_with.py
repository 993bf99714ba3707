# words: with
# other: async with
import torch


async def watch(engine, loader, rows):
    for x in loader:
        WORD torch.no_grad():
            loss = engine.train_step(x.cuda())
        rows.append(loss.item())  # <~ TP101
