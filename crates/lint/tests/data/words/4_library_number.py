# words: numpy.mean, random.choice, time.ctime, os.cpu_count
# other: library.quux
import library, numpy, os, random, time
import torch

def train(model, loader, optimizer, scales):
    for batch in loader:
        scale = WORD(scales)
        loss = model(batch.cuda()) * scale.item()  # <~ TP101?
        loss.backward()
        optimizer.step()
