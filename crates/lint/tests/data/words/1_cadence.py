# words: do_log, every_n, is_log, log_step, log_this, time_to_, to_log, to_print, to_report
import torch

def train(model, loader, optimizer, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if my_WORD_x:
            print(loss.item())  # <~ TP101?
