# words: global_zero, is_main, is_master, is_primary, main_process, master_process, world_process_zero
import torch


def train(model, loader, optimizer, rows, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if my_WORD_x:
            rows.append(loss.item())  # <- TP101 # <~ TP101?
