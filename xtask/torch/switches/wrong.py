"""Planted wrong remedies: none may pass a shadow step. `python wrong.py HOOK`; one line each."""
import contextlib
import sys
import types

import models
import torch
from torch import nn
from torch.nn import functional as F

SINGLE, BF16 = 6e-8, 4e-3
CASES = []


def case(model, name, unit=SINGLE, random="same", acts_on="forward", **settings):
    """Plants a remedy: the function gets the model and a stack that undoes what it puts there."""

    def add(plant):
        CASES.append((name, model, dict(UNIT=unit, RANDOM=random, ACTS_ON=acts_on), plant, settings))
        return plant

    return add


def set_to(stack, owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


def scaled_gradient(stack, layer, factor):
    stack.callback(layer.register_full_backward_pre_hook(lambda _, given: (given[0] * factor,)).remove)


def scaled_output(stack, layer, factor):
    stack.callback(layer.register_forward_hook(lambda _, given, output: output * factor).remove)


def replaced_forward(stack, layer, forward):
    layer.forward = forward
    stack.callback(delattr, layer, "forward")


def in_bf16(stack, model):
    """What autocast does, so that a wrong one hides among its roundings."""
    remedy = PARTS.part("remedies/bf16_autocast")
    stack.callback(remedy.enter(model))


for number, place in enumerate(("first", "middle", "last")):

    @case("language", f"gradient of the {place} block's MLP 1% too large")
    def _(model, stack, number=number):
        scaled_gradient(stack, model.blocks[number].up, 1.01)

    @case("language", f"the same in bf16, {place} block", unit=BF16, random="other")
    def _(model, stack, number=number):
        in_bf16(stack, model)
        scaled_gradient(stack, model.blocks[number].up, 1.01)


@case("language", "output of one MLP 1% too small in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    scaled_output(stack, model.blocks[1].down, 0.99)


@case("images", "gradient of the classifier 1% too large in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    scaled_gradient(stack, model.head, 1.01)


@case("recurrent", "gradient of the classifier 1% too small in bf16", unit=BF16)
def _(model, stack):
    in_bf16(stack, model)
    scaled_gradient(stack, model.head, 0.99)


@case("llama", "1% in one projection in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    scaled_gradient(stack, model.model.layers[0].mlp.down_proj, 1.01)


@case("llama in bf16", "1% in one projection of a script in bf16")
def _(model, stack):
    scaled_gradient(stack, model.model.layers[1].mlp.up_proj, 1.01)


@case("llama of bf16 weights", "another root of scores, in bf16 weights")
def _(model, stack):
    for layer in model.model.layers:
        set_to(stack, layer.self_attn, "scaling", layer.self_attn.scaling * 1.05)


@case("llama", "the loss 1% too large")
def _(model, stack):
    def change(_, given, output):
        output["loss"] = output["loss"] * 1.01
        return output

    stack.callback(model.register_forward_hook(change).remove)


@case("language", "logits 0.3% too large")
def _(model, stack):
    scaled_output(stack, model, 1.003)


@case("language", "gradient of a bias dropped")
def _(model, stack):
    stack.callback(model.blocks[1].up.bias.register_hook(torch.zeros_like).remove)


@case("language", "gradient of a bias dropped in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    stack.callback(model.blocks[1].value.bias.register_hook(torch.zeros_like).remove)


@case("language", "a parameter that no longer needs a gradient")
def _(model, stack):
    set_to(stack, model.norm.bias, "requires_grad", False)


@case("language", "a residual branch is detached")
def _(model, stack):
    stack.callback(model.blocks[1].down.register_forward_hook(lambda _, given, output: output.detach()).remove)


@case("language", "the keys are detached in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    stack.callback(model.blocks[2].key.register_forward_hook(lambda _, given, output: output.detach()).remove)


@case("language", "one use of a tied weight gets no gradient")
def _(model, stack):
    replaced_forward(stack, model.head, lambda x: F.linear(x, model.head.weight.detach()))


@case("language", "rows of the embedding get no gradient in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    rows = torch.arange(96).unsqueeze(1) >= 12
    stack.callback(model.embedding.weight.register_hook(lambda gradient: gradient * rows).remove)


@case("language", "one attention head gets no gradient in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    rows = torch.arange(32).unsqueeze(1) >= 8
    stack.callback(model.blocks[0].value.weight.register_hook(lambda gradient: gradient * rows).remove)


@case("language", "gradients clipped by value")
def _(model, stack):
    for parameter in model.parameters():
        stack.callback(parameter.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3)).remove)


@case("language", "scores divided by another root")
def _(model, stack):
    layer = model.blocks[0].query
    scaled_output(stack, layer, 1.02)


@case("language", "another epsilon in a norm")
def _(model, stack):
    set_to(stack, model.blocks[1].first, "eps", 1e-2)


@case("language", "weights rounded to bf16 by a remedy of fp32")
def _(model, stack):
    for parameter in model.parameters():
        set_to(stack, parameter, "data", parameter.data.bfloat16().float())


@case("language with dropout", "dropout left out of one place")
def _(model, stack):
    set_to(stack, model.blocks[0].dropout, "p", 0.0)


@case("language with dropout", "dropout left out by a fused attention", random="other")
def _(model, stack):
    for block in model.blocks:
        set_to(stack, block, "is_fused", True)
        set_to(stack, block, "share", 0.0)


@case("language with dropout", "dropout left out in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)
    set_to(stack, model.blocks[2].dropout, "p", 0.0)


@case("language with dropout", "dropout of another share", random="other")
def _(model, stack):
    set_to(stack, model.blocks[1].dropout, "p", 0.12)


@case("language with dropout", "dropout drawn anew from a fixed seed")
def _(model, stack):
    def seed(module, given):
        torch.manual_seed(1)

    stack.callback(model.register_forward_pre_hook(seed).remove)


@case("recurrent with dropout", "dropout left out between the layers of an LSTM", random="other")
def _(model, stack):
    set_to(stack, model.lstm, "dropout", 0.0)


@case("multihead with dropout", "dropout left out of nn.MultiheadAttention", random="other")
def _(model, stack):
    set_to(stack, model.attention, "dropout", 0.0)


@case("images with stochastic depth", "stochastic depth left out", random="other")
def _(model, stack):
    set_to(stack, model, "depth", 0.0)


@case("images", "a sample repeated")
def _(model, stack):
    def repeat(_, given):
        return (torch.cat([given[0][:-1], given[0][:1]]),)

    stack.callback(model.register_forward_pre_hook(repeat).remove)


@case("language", "a sample repeated in bf16", unit=BF16, random="other")
def _(model, stack):
    in_bf16(stack, model)

    def repeat(_, given):
        return (torch.cat([given[0][:-1], given[0][:1]]),)

    stack.callback(model.register_forward_pre_hook(repeat).remove)


@case("mixed", "samples skipped")
def _(model, stack):
    stack.callback(model.layers.register_forward_pre_hook(lambda _, given: (given[0][: len(given[0]) // 2],)).remove)


@case("images", "batch norm uses its running averages")
def _(model, stack):
    set_to(stack, model.stem[1], "training", False)


@case("images", "batch norm keeps no running averages")
def _(model, stack):
    set_to(stack, model.stem[1], "momentum", 0.0)


@case("images", "height and width of a kernel exchanged")
def _(model, stack):
    weight = model.middle[0].weight
    set_to(stack, weight, "data", weight.data.transpose(2, 3).contiguous())


@case("mixed", "another activation")
def _(model, stack):
    replaced_forward(stack, model.layers[3], lambda x: F.hardtanh(x))


@case("mixed", "compiled code that is 1% off", random="compiled")
def _(model, stack):
    set_to(stack, model.layers[2], "_compiled_call_impl", lambda *given: model.layers[2]._call_impl(*given) * 1.01)


@case("mixed", "a remedy that raises")
def _(model, stack):
    def fail(_, given):
        raise ArithmeticError("planted")

    stack.callback(model.register_forward_pre_hook(fail).remove)


@case("mixed", "a gradient that is not a number")
def _(model, stack):
    stack.callback(model.head.bias.register_hook(lambda gradient: gradient * float("nan")).remove)


# Updates.


def update(name, optimizer=None):
    settings = {} if optimizer is None else {"optimizer": optimizer}
    return case("mixed", name, acts_on="optimizer", **settings)


def in_groups(name, **values):
    def plant(model, stack, optimizer):
        for group in optimizer.param_groups:
            for key, value in values.items():
                before = group[key]
                group[key] = value
                stack.callback(group.__setitem__, key, before)

    return plant


def sgd(**settings):
    return lambda parameters: torch.optim.SGD(parameters, lr=0.1, **settings)


update("a learning rate 1% too large")(in_groups("lr", lr=1.01e-3))
update("weight decay dropped")(in_groups("decay", weight_decay=0.0))
update("another momentum")(in_groups("betas", betas=(0.89, 0.999)))
update("another epsilon of Adam")(in_groups("eps", eps=1e-5))
update("amsgrad left out", lambda parameters: torch.optim.AdamW(parameters, amsgrad=True))(in_groups("ams", amsgrad=False))
update("momentum dropped", sgd(momentum=0.9))(in_groups("momentum", momentum=0.0))
update("Nesterov's step left out", sgd(momentum=0.9, nesterov=True))(in_groups("nesterov", nesterov=False))


def after_update(change):
    """Plants `change(optimizer)` behind the update; `prepare(optimizer)` gives it what was before."""

    def plant(model, stack, optimizer):
        owner = type(optimizer)
        original = owner.step

        def step(self, closure=None):
            before = {key: {name: value.clone() for name, value in state.items()} for key, state in self.state.items()}
            weights = {key: key.detach().clone() for key in self.state}
            result = original.__wrapped__(self) if hasattr(original, "__wrapped__") else original(self)
            with torch.no_grad():
                change(self, before, weights)
            return result

        set_to(stack, owner, "step", step)

    return plant


@update("stale state: the first moment is not written")
@after_update
def _(optimizer, before, weights):
    for key, state in optimizer.state.items():
        state["exp_avg"].copy_(before[key]["exp_avg"])


@update("stale state: the step is not counted")
@after_update
def _(optimizer, before, weights):
    for key, state in optimizer.state.items():
        state["step"].copy_(before[key]["step"])


@update("one parameter is not updated")
@after_update
def _(optimizer, before, weights):
    key = next(iter(weights))
    key.copy_(weights[key])


@update("the second moment is kept in bf16")
@after_update
def _(optimizer, before, weights):
    for state in optimizer.state.values():
        state["exp_avg_sq"].copy_(state["exp_avg_sq"].bfloat16())


@update("the state of one parameter is dropped")
@after_update
def _(optimizer, before, weights):
    del optimizer.state[next(iter(weights))]


@case("mixed", "gradients dropped where a parameter is unused", acts_on="gradients")
def _(model, stack):
    model.head.bias.grad.zero_()


def remedy_of(name, constants, plant, step):
    def on(context):
        stack = contextlib.ExitStack()
        if constants["ACTS_ON"] == "optimizer":
            plant(step.model, stack, step.optimizer)
        else:
            plant(step.model, stack)
        return stack.close

    return types.SimpleNamespace(NAME=name, CLASS="rounding", on=on, applies=lambda facts: None, **constants)


def main():
    global PARTS
    PARTS = models.hook(sys.argv[1])
    switches = PARTS.part("switches")
    passed = []
    for name, model, constants, plant, settings in CASES:
        step = models.made(PARTS, model, **settings)
        if constants["ACTS_ON"] == "gradients":
            plant(step.model, None)
        found = step.check(switches.Switch(remedy_of(name, constants, plant, step)))
        print(f"{found['verdict']:12s} {name} ({model}): {found['reason']}", flush=True)
        if found["verdict"] != "differs":
            passed.append(name)
    print(f"{len(CASES) - len(passed)} of {len(CASES)} wrong remedies were refused; not: {passed}")
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
