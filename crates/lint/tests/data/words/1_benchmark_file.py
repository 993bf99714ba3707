# words: bench, benchmark, benchmarking, benchmarks, perf, profiling
# file: WORD/step.py
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <- TP101? # <~ TP101
