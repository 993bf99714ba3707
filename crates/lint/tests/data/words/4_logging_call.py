# words: builtins.print, builtins.repr, builtins.str, logging.info, mlflow.log_metric, mlflow.log_metrics, tqdm.tqdm.write, wandb.log
# other: wandb.quux
import builtins
import logging
import mlflow
import torch
import tqdm
import wandb

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = WORD(loss)  # <- TP103
        optimizer.step()
