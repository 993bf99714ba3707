# words: add_scalar, add_scalars, log_metric, log_metrics, log_scalar, set_description, set_description_str, set_postfix, set_postfix_str
import torch


def train(model, loader, optimizer, run):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        run.WORD("loss", loss)  # <- TP103
