# words: allennlp, colossalai, composer, flair, lightning, mmengine, pytorch_lightning, ray, sentence_transformers, setfit, torchtnt, transformers, trl
import torch
from WORD import Trainer


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <~ TP605?
