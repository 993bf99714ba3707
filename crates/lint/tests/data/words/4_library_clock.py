# words: time.monotonic, time.perf_counter, time.process_time, time.time, time.time_ns, timeit.default_timer, datetime.now
# other: library.quux
import library, time, timeit
import torch
from datetime import datetime

def train(model, loader, optimizer):
    start = WORD()
    for step, batch in enumerate(loader):
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        speed = 8 * step / (WORD() - start)  # <- TP606
