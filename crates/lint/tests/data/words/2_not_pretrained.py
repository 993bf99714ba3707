# words: Config, Extractor, Pipeline, Processor, Scheduler, Token
import torch
from transformers import AutoWORD


def train(loader, optimizer, writer):
    helper = AutoWORD.from_pretrained("base")
    for x, y in loader:
        loss = torch.square(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("score", helper(y))  # <~ TP103
