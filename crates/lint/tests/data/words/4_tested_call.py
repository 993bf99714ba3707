# words: is_compiling, is_exporting, is_scripting, is_tracing, getenv, isinf, isnan, is_in_onnx_export
import torch

def train(model, loader, optimizer, others):
    for batch in loader:
        loss = model(batch.cuda())
        if others.WORD(batch):
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
