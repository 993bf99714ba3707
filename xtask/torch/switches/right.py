"""Right remedies: at most one may be refused by a shadow step. `python right.py HOOK`; one line each."""
import contextlib
import sys
import types

import models
import torch
from torch import nn
from torch.nn import functional as F

SINGLE, BF16 = 6e-8, 4e-3


def optimizers():
    kinds = {
        "Adam": lambda those: torch.optim.Adam(those, lr=1e-3),
        "AdamW with amsgrad": lambda those: torch.optim.AdamW(those, amsgrad=True, weight_decay=0.1),
        "SGD with momentum": lambda those: torch.optim.SGD(those, lr=0.1, momentum=0.9, nesterov=True),
        "Adagrad": lambda those: torch.optim.Adagrad(those, lr=0.1),
        "Adam in two groups": lambda those: two_groups(list(those)),
    }
    return kinds.items()


def two_groups(parameters):
    return torch.optim.Adam([{"params": parameters[::2], "lr": 1e-3}, {"params": parameters[1::2], "weight_decay": 0.1}])


def cases():
    """Remedy, model, settings of the step."""
    for model in models.MODELS:
        if "bf16" not in model:
            yield "bf16-autocast", model, {}
    attentive = ("multihead", "multihead with dropout", "llama", "gpt2", "gpt2 without dropout")
    for model in (*attentive, "llama in bf16", "llama of bf16 weights"):
        yield "sdpa", model, {}
    for model in ("images", "images with dropout", "images with stochastic depth", "images in bf16"):
        yield "channels-last", model, {}
    for name, optimizer in optimizers():
        yield "fused-optimizer", "mixed", {"optimizer": optimizer}
        yield "foreach-optimizer", "mixed", {"optimizer": optimizer}
    for remedy in ("tf32", "cudnn-benchmark", "gc-frozen", "zero-grad-none", "non-blocking-copies"):
        yield remedy, "images with dropout", {}
    for model in ("mixed", "images with dropout", "recurrent"):
        yield "compile", model, {}
    yield "compile-blocks", "language with dropout", {}
    for model in ("mixed with dropout", "bert with dropout"):
        yield "compile", model, {"backend": "inductor"}
    for model in ("diffusion", "bert in bf16", "images with stochastic depth", "multihead with dropout"):
        yield "compile", model, {}


# Rewrites by hand that give the same.
REWRITES = []


def rewrite(model, name, unit=SINGLE, random="same"):
    def add(plant):
        REWRITES.append((name, model, dict(UNIT=unit, RANDOM=random), plant))
        return plant

    return add


def set_to(stack, owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


@rewrite("language", "attention by one fused call")
def _(model, stack):
    for block in model.blocks:
        set_to(stack, block, "is_fused", True)


@rewrite("language with dropout", "attention with dropout by one fused call", random="other")
def _(model, stack):
    for block in model.blocks:
        set_to(stack, block, "is_fused", True)


@rewrite("language", "weights rounded to bf16 for the products", unit=BF16)
def _(model, stack):
    for layer in (one for one in model.modules() if isinstance(one, nn.Linear)):
        layer.forward = lambda x, layer=layer: F.linear(x.bfloat16(), layer.weight.bfloat16(), to_bf16(layer.bias)).float()
        stack.callback(delattr, layer, "forward")


def to_bf16(bias):
    return None if bias is None else bias.bfloat16()


@rewrite("mixed", "products in double precision")
def _(model, stack):
    for layer in (one for one in model.modules() if isinstance(one, nn.Linear)):
        layer.forward = lambda x, layer=layer: F.linear(x.double(), layer.weight.double(), layer.bias.double()).float()
        stack.callback(delattr, layer, "forward")


@rewrite("images", "the batch in two halves where no layer mixes samples")
def _(model, stack):
    model.head.forward = lambda x: torch.cat([F.linear(part, model.head.weight, model.head.bias) for part in x.chunk(2)])
    stack.callback(delattr, model.head, "forward")


@rewrite("recurrent with dropout", "nothing at all, where dropout is drawn")
def _(model, stack):
    pass


def main():
    parts = models.hook(sys.argv[1])
    switches = parts.part("switches")
    table = switches.table()
    models.MODELS["mixed with dropout"] = (models.MixedWithDropout, *models.MODELS["mixed"][1:])
    found = []
    for name, model, settings in cases():
        step = models.made(parts, model, **settings)
        found.append((name, model, step.check(table[name])))
        report(*found[-1])
    for name, model, constants, plant in REWRITES:

        def on(context):
            stack = contextlib.ExitStack()
            plant(context.modules[0], stack)
            return stack.close

        remedy = types.SimpleNamespace(NAME=name, CLASS="rounding", on=on, applies=lambda facts: None, **constants)
        found.append((name, model, models.made(parts, model).check(switches.Switch(remedy))))
        report(*found[-1])
    refused = [(name, model) for name, model, answer in found if answer["verdict"] != "same"]
    print(f"{len(found) - len(refused)} of {len(found)} right remedies passed; not: {refused}")
    return 1 if len(refused) > 1 or len(found) < 30 else 0


def report(name, model, answer):
    largest = max((row["excess"] for row in answer["largest"]), default=0.0)
    words = f"{answer['reason']}; at most {largest:.2f} of what is allowed, {answer['replays']} replays"
    print(f"{answer['verdict']:12s} {name} ({model}): {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
