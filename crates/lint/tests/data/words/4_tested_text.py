# words: cpu, dev, eval, evaluate, inference, meta, mps, npu, onnx, test, val, valid, validation, xla
import torch

def train(model, loader, optimizer, stage):
    for batch in loader:
        loss = model(batch.cuda())
        if stage == "WORD":
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
