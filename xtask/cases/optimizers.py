#!/usr/bin/env python3
"""Writes optimizers.json beside a reference case: PyTorch's losses and rates under other optimizers and schedules.

    python3 xtask/cases/optimizers.py crates/training/tests/data/nano

Needs torch, transformers and safetensors. The model, weights and batch are the case's own; every list has the loss before each of
20 steps on that batch, and the learning rate of each step as PyTorch's scheduler gives it. Muon is PyTorch's own, which iterates in
bfloat16; the list that ours is held against iterates in single precision, and the other is kept beside it.
"""
import json
import sys
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.optim import lr_scheduler
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, WARMUP, DECAY = 20, 4, 6
ADAMW = {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def after_warm_up(optimizer, *rest):
    """Warm-up from a part of the rate to all of it, then the given schedulers, each with the step it starts at."""
    rises = lr_scheduler.LinearLR(optimizer, start_factor=1 / WARMUP, end_factor=1.0, total_iters=WARMUP - 1)
    return lr_scheduler.SequentialLR(optimizer, [rises, *(made for _, made in rest)], [at for at, _ in rest])


def linear(optimizer, floor):
    falls = lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=floor, total_iters=STEPS - WARMUP)
    return after_warm_up(optimizer, (WARMUP, falls))


def cosine(optimizer, floor):
    falls = lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - WARMUP, eta_min=floor * ADAMW["lr"])
    return after_warm_up(optimizer, (WARMUP, falls))


def wsd(optimizer, floor):
    stays = lr_scheduler.ConstantLR(optimizer, factor=1.0)
    falls = lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=floor, total_iters=DECAY)
    return after_warm_up(optimizer, (WARMUP, stays), (STEPS - DECAY, falls))


def all_decay(model):
    return model.parameters()


def matrices_decay(model):
    """Norms keep their size."""
    rows = [one for one in model.parameters() if one.dim() > 1], [one for one in model.parameters() if one.dim() < 2]
    return [{"params": rows[0]}, {"params": rows[1], "weight_decay": 0.0}]


def adamw(model, groups):
    return [torch.optim.AdamW(groups(model), **ADAMW)]


def sgd(momentum):
    return lambda model, groups: [torch.optim.SGD(groups(model), lr=0.1, momentum=momentum, weight_decay=ADAMW["weight_decay"])]


def muon(model, groups):
    """Matrices of the blocks by Muon, the rest by AdamW, with one rate."""
    is_hidden = lambda name, one: one.dim() == 2 and "embed" not in name and "lm_head" not in name
    hidden = [one for name, one in model.named_parameters() if is_hidden(name, one)]
    rest = [one for name, one in model.named_parameters() if not is_hidden(name, one)]
    settings = {"lr": ADAMW["lr"], "weight_decay": ADAMW["weight_decay"], "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    return [torch.optim.Muon(hidden, **settings), torch.optim.AdamW(rest, **ADAMW)]


def constant(optimizer, floor):
    return lr_scheduler.ConstantLR(optimizer, factor=1.0)


def losses(folder, scheduler, floor, groups=all_decay, optimizers=adamw, clip=0.0):
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder, attn_implementation="eager", dtype="float32")).float().train()
    model.load_state_dict(load_file(f"{folder}/model.safetensors"), strict=False)
    expected = load_file(f"{folder}/expected.safetensors")
    ids, targets = expected["input_ids"], expected["targets"]
    optimizers = optimizers(model, groups)
    schedules = [scheduler(one, floor) for one in optimizers]
    found, rates = [], []
    for _ in range(STEPS):
        logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))
        model.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        rates.append(optimizers[0].param_groups[0]["lr"])
        for optimizer, schedule in zip(optimizers, schedules):
            optimizer.step()
            schedule.step()
        found.append(loss.item())
    return {"floor": floor, "losses": found, "rates": rates}


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    schedules = {"linear": losses(folder, linear, 0.1), "cosine": losses(folder, cosine, 0.1), "wsd": losses(folder, wsd, 0.0)}
    case = {"optimizer": {"name": "AdamW", **ADAMW}, "steps": STEPS, "warmup_steps": WARMUP, "decay_steps": DECAY, "schedules": schedules}
    case["matrices_decay"] = losses(folder, cosine, 0.1, matrices_decay)
    case["sgd"] = losses(folder, constant, 1.0, optimizers=sgd(0.0))
    case["sgd_momentum"] = losses(folder, constant, 1.0, optimizers=sgd(0.9), clip=0.5)
    case["muon_in_bf16"] = losses(folder, constant, 1.0, optimizers=muon, clip=0.5)
    # Replaces the type that PyTorch's iteration calls bfloat16.
    with mock.patch("torch.optim._muon.torch.bfloat16", torch.float32):
        case["muon"] = losses(folder, constant, 1.0, optimizers=muon, clip=0.5)
    with open(f"{folder}/optimizers.json", "w") as file:
        file.write(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
