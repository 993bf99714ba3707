# words: 16-mixed, bf16, bf16-mixed, bfloat16, float16, fp16
import torch

precision = "WORD"


def train(engine, loader, optimizer):
    model = engine.wrap(torch.nn.Linear(8, 8).cuda(), precision)
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()  # <~ TP401?
        optimizer.step()
