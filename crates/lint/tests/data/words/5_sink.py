# words: add_scalar, add_scalars, debug, info, log, log_metric, log_metrics, log_scalar, set_description, set_description_str, set_postfix, set_postfix_str, write
# shows: fix
import torch

def train(model, loader, optimizer, run):
    for step, x in enumerate(loader):
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.WORD(f"loss {loss}")  # <- TP103/if # <~ TP103/-
