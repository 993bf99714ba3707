# words: apex, detectron2, fairseq, mmcv, mmdet, mmpose, mmseg
# file: project/models/WORD/step.py
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101? # <~ TP101
