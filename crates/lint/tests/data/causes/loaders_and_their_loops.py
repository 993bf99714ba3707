"""A loader that feeds training is worth workers and pinned memory; one that is read now and then is not."""

import argparse

import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", type=int, default=0)
args = parser.parse_args()


def main(train_set, prompts, held_out, chosen, model, optimizer):
    sample_loader = DataLoader(prompts, batch_size=4)
    for prompt in sample_loader:
        model.draw(prompt)
    loader = DataLoader(train_set, batch_size=32, shuffle=True)  # <- TP301
    val_loader = DataLoader(held_out, batch_size=32)
    asked_loader = DataLoader(chosen, batch_size=32, num_workers=args.num_workers, pin_memory=True)
    for epoch in range(3):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x.cuda()).mean()
            with open("losses.txt", "a") as log:
                log.write("one more\n")
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for x in val_loader:
                model(x.cuda())
    return asked_loader
