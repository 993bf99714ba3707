"""Every switch on and off again: all that was there is there. Also compiled code per combination, void blocks, that a shadow
step leaves nothing behind, and what it cannot do. `python offs.py HOOK`; one line per check."""
import gc
import importlib
import sys
import types

import models
import torch
from torch import nn
from torch.utils.data import DataLoader

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def fingerprint(step, with_values=False):
    """Everything that a switch may touch, as plain values."""
    model, optimizer = step.model, step.optimizer
    dynamo = sys.modules.get("torch._dynamo.config")
    return {
        "parameters": [(id(one), one.data_ptr(), one.stride(), one.dtype, one.requires_grad) for one in model.parameters()],
        "gradients": [None if one.grad is None else one.grad.stride() for one in model.parameters()],
        "buffers": [(name, one.stride(), one.dtype) for name, one in model.named_buffers()],
        "state": [
            [(name, value.device, value.dtype, value.stride()) for name, value in state.items()]
            for state in optimizer.state.values()
        ],
        "groups": [
            {name: value for name, value in group.items() if name != "params"}
            for group in [*optimizer.param_groups, optimizer.defaults]
        ],
        "optimizer": sorted(vars(optimizer)),
        "attributes": [sorted(vars(part)) for part in model.modules()],
        "compiled": [part._compiled_call_impl for part in model.modules()],
        "attention": [PARTS.part("facts").attention_of(part) for part in model.modules()],
        "flags": (
            torch.backends.cuda.matmul.allow_tf32,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            torch.backends.cudnn.benchmark,
            torch.is_autocast_enabled("cpu"),
        ),
        "collector": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()),
        "classes": (
            nn.Module.__call__, nn.Module.zero_grad, nn.MultiheadAttention.forward, torch.optim.Optimizer.zero_grad,
            torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
            "to" in vars(torch.Tensor), "cuda" in vars(torch.Tensor),
        ),
        "dynamo": dynamo and (dynamo.suppress_errors, getattr(dynamo, "recompile_limit", None)),
        "values": values(step) if with_values else None,
    }


def values(step):
    found = [one.detach().clone() for one in [*step.model.parameters(), *step.model.buffers()]]
    found += [one.grad.clone() for one in step.model.parameters() if one.grad is not None]
    found += [value.clone() for state in step.optimizer.state.values() for value in state.values()]
    return [*found, torch.get_rng_state()]


def same(before, after):
    first, second = before.pop("values"), after.pop("values")
    for name in before:
        assert before[name] == after[name], (name, before[name], after[name])
    assert (first is None) == (second is None)
    assert first is None or all(torch.equal(one, other) for one, other in zip(first, second))


def on_and_off(name, model, **settings):
    """With steps in between, and without: then every value is the same too."""
    step = models.made(PARTS, model, **settings)
    switch = TABLE[name]
    if "compile" in name:
        # Its settings are compared too.
        importlib.import_module("torch._dynamo")
    before = fingerprint(step, with_values=True)
    switch.on(step.context)
    during = fingerprint(step)
    switch.off(step.context)
    same(before, fingerprint(step, with_values=True))
    before = fingerprint(step)
    switch.on(step.context)
    for _ in range(2):
        step.step()
    switch.off(step.context)
    assert not step.context.active
    same(before, fingerprint(step))
    step.step()
    same(before | {"values": None}, fingerprint(step))
    return before, during


@check
def tf32_is_as_it_was():
    for kept in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = kept
        before, during = on_and_off("tf32", "mixed")
        assert before["flags"][0] is kept and during["flags"][:2] == (True, True)
    torch.backends.cuda.matmul.allow_tf32 = False


@check
def cudnn_benchmark_is_as_it_was():
    for kept in (True, False):
        torch.backends.cudnn.benchmark = kept
        before, during = on_and_off("cudnn-benchmark", "images")
        assert before["flags"][3] is kept and during["flags"][3] is True


@check
def autocast_leaves_the_module_its_own_forward():
    _, during = on_and_off("bf16-autocast", "language")
    assert "forward" in during["attributes"][0]

    # A forward of the instance's own, as a framework sets it.
    make, batch, loss = models.MODELS["mixed"]

    def wrapped():
        model = make()
        model.forward = types.MethodType(type(model).forward, model)
        return model

    models.MODELS["wrapped"] = (wrapped, batch, loss)
    step = models.made(PARTS, "wrapped")
    own = step.model.forward
    TABLE["bf16-autocast"].on(step.context)
    assert step.model.forward is not own
    TABLE["bf16-autocast"].off(step.context)
    assert step.model.forward is own


@check
def attention_implementations_are_as_they_were():
    before, during = on_and_off("sdpa", "llama")
    assert before["attention"][0] == "eager" and during["attention"][0] == "sdpa"
    before, during = on_and_off("sdpa", "multihead")
    assert before["classes"][2] is not during["classes"][2]


@check
def channels_last_leaves_strides_storage_and_state():
    before, during = on_and_off("channels-last", "images")
    assert before["parameters"][0][2] == (27, 9, 3, 1) and during["parameters"][0][2] == (27, 1, 9, 3)
    assert during["gradients"][0] == (27, 1, 9, 3)
    assert all(strides[2:] != ((27, 9, 3, 1),) for strides in during["state"][0][1:]), during["state"][0]
    # The same places each time it is on: graphs that were captured with them stay valid.
    step = models.made(PARTS, "images")
    places = []
    for _ in range(2):
        TABLE["channels-last"].on(step.context)
        places.append([one.data_ptr() for one in step.model.parameters()])
        step.step()
        TABLE["channels-last"].off(step.context)
    assert places[0] == places[1]


@check
def optimizers_get_their_ways_back():
    for optimizer in (torch.optim.AdamW, torch.optim.Adam, lambda those: torch.optim.SGD(those, lr=0.1, momentum=0.9)):
        _, during = on_and_off("fused-optimizer", "mixed", optimizer=optimizer)
        assert during["groups"][0]["fused"] is True and "_step_supports_amp_scaling" in during["optimizer"]
        _, during = on_and_off("foreach-optimizer", "mixed", optimizer=optimizer)
        assert during["groups"][0]["foreach"] is True


class OnDevice:
    """A parameter or a count of steps that knows its device, as there is none here."""

    def __init__(self, device):
        self.device = device

    def to(self, device):
        return OnDevice(device)


@check
def the_step_count_of_a_fused_optimizer_returns_to_the_host():
    first, second = OnDevice("cuda"), OnDevice("cuda")
    optimizer = types.SimpleNamespace(state={first: {"step": OnDevice("cpu")}}, defaults={"fused": None, "foreach": None})
    optimizer.param_groups = [{"params": [first, second], "fused": None, "foreach": None, "capturable": False}]
    off = PARTS.part("remedies/fused_optimizer").change(optimizer)
    assert optimizer.state[first]["step"].device == "cuda"
    # A parameter that takes its first step while it is on.
    optimizer.state[second] = {"step": OnDevice("cuda")}
    off()
    assert [state["step"].device for state in optimizer.state.values()] == ["cpu", "cpu"]


@check
def gradients_are_filled_with_zeros_again():
    step = models.made(PARTS, "mixed")
    TABLE["zero-grad-none"].on(step.context)
    step.optimizer.zero_grad(set_to_none=False)
    assert all(one.grad is None for one in step.model.parameters())
    TABLE["zero-grad-none"].off(step.context)
    assert all(one.grad is not None and not one.grad.any() for one in step.model.parameters())
    step.step()
    step.optimizer.zero_grad(set_to_none=False)
    assert all(one.grad is not None for one in step.model.parameters())
    on_and_off("zero-grad-none", "mixed")


@check
def the_collector_is_as_it_was():
    before, during = on_and_off("gc-frozen", "mixed")
    assert during["collector"][0][0] == 10_000 and during["collector"][1] > 0 and before["collector"][1] == 0
    gc.freeze()
    try:
        TABLE["gc-frozen"].on(models.made(PARTS, "mixed").context)
    except PARTS.part("switches").NothingToSwitch as error:
        assert "frozen" in str(error)
    else:
        raise AssertionError("frozen objects of the script cannot be told from ours")
    finally:
        gc.unfreeze()


@check
def copies_are_made_as_before():
    on_and_off("non-blocking-copies", "mixed")
    step = models.made(PARTS, "mixed")
    TABLE["non-blocking-copies"].on(step.context)
    remedy = PARTS.part("remedies/non_blocking_copies")
    fresh = remedy.mark_fresh
    # No memory can be pinned here: every batch counts as if it were.
    remedy.mark_fresh = lambda batch: True
    try:
        list(DataLoader(torch.zeros(4, 2)))
        assert "to" in vars(torch.Tensor)
    finally:
        remedy.mark_fresh = fresh
    TABLE["non-blocking-copies"].off(step.context)
    assert "to" not in vars(torch.Tensor) and "cuda" not in vars(torch.Tensor)


@check
def switches_go_off_in_any_order():
    importlib.import_module("torch._dynamo")
    others = ["channels-last", "bf16-autocast", "tf32", "fused-optimizer", "zero-grad-none", "gc-frozen"]
    for compiling in ("compile", "compile-reduce-overhead"):
        names = [*others, compiling]
        for order in (names, names[::-1], names[3:] + names[:3]):
            step = models.made(PARTS, "images")
            before = fingerprint(step)
            for name in names:
                TABLE[name].on(step.context)
            for name in order:
                TABLE[name].off(step.context)
            same(before, fingerprint(step))


@check
def switches_that_exclude_each_other_say_so():
    step = models.made(PARTS, "mixed")
    step.context.facts = lambda: {"optimizers": [dict(has_foreach=True, fused=False, foreach=None, device="cpu")]}
    assert TABLE["foreach-optimizer"].applies(step.context) is None
    TABLE["fused-optimizer"].on(step.context)
    assert TABLE["foreach-optimizer"].applies(step.context) == "fused-optimizer is on"
    for switch in (TABLE["foreach-optimizer"], TABLE["fused-optimizer"], TABLE["loader-workers"]):
        try:
            switch.on(step.context)
        except ValueError:
            continue
        raise AssertionError(switch.name)
    TABLE["fused-optimizer"].off(step.context)


@check
def switches_say_where_and_how_long():
    between = {name for name, switch in TABLE.items() if switch.where == "between_steps"}
    assert between == {
        "tf32", "bf16-autocast", "sdpa", "compile", "compile-blocks", "compile-reduce-overhead", "channels-last",
        "fused-optimizer", "foreach-optimizer", "cudnn-benchmark", "zero-grad-none", "gc-frozen", "non-blocking-copies",
    }, between
    assert all(switch.settle >= 1 for switch in TABLE.values()) and TABLE["compile"].settle > TABLE["tf32"].settle


@check
def compiled_code_is_kept_for_each_combination_and_its_blocks_are_void_while_compiling():
    switches = PARTS.part("switches")
    step = models.made(PARTS, "mixed", backend="aot_eager")
    context = step.context

    def block(steps=3):
        begun = switches.mark(context)
        for _ in range(steps):
            step.step()
        return switches.void(context, begun, steps)

    assert block() is None, "nothing compiled runs"
    TABLE["compile"].on(context)
    assert block().startswith("compiled "), "the first steps compile"
    for _ in range(3):
        if block() is None:
            break
    assert block() is None
    TABLE["bf16-autocast"].on(context)
    assert block().startswith("compiled "), "another combination is compiled for itself"
    assert block() is None or block() is None
    TABLE["bf16-autocast"].off(context)
    assert block() is None, "the first combination is still there"
    TABLE["compile"].off(context)
    TABLE["bf16-autocast"].on(context)
    assert block() is None
    TABLE["compile"].on(context)
    assert block() is None, "and so is the second"
    with torch.compiler.set_stance("force_eager"):
        assert block() == "fell back to eager execution: no compiled graph ran"
    assert block() is None
    TABLE["compile"].off(context)
    TABLE["bf16-autocast"].off(context)


@check
def compile_leaves_no_trace_when_off():
    on_and_off("compile", "mixed", backend="aot_eager")
    on_and_off("compile-blocks", "language", backend="aot_eager")
    on_and_off("compile-reduce-overhead", "mixed", backend="aot_eager")


@check
def graphs_drop_gradients_and_share_the_code_of_shadow_steps_with_compile():
    switches = PARTS.part("switches")
    step = models.made(PARTS, "language with dropout", backend="aot_eager")
    context = step.context
    answers = [step.check(TABLE[name])["verdict"] for name in ("compile-reduce-overhead", "compile")]
    code = context.store[PARTS.part("remedies/compile").CODE]
    assert answers == ["same", "same"] and list(code) == [(None, "taped"), (None,)], (answers, list(code))
    TABLE["compile-reduce-overhead"].on(context)
    step.optimizer.zero_grad(set_to_none=False)
    assert all(one.grad is None for one in step.model.parameters())
    step.step()
    assert list(code)[2:] == [("reduce-overhead",)], "graphs replay steps, and no shadow steps"
    kept = [one.grad for one in step.model.parameters()]
    # A shadow step of another switch runs uncompiled, and leaves the compiled code as it was.
    assert step.check(TABLE["tf32"])["verdict"] == "same"
    begun = switches.mark(context)
    step.step()
    assert switches.void(context, begun, 1) is None
    TABLE["compile-reduce-overhead"].off(context)
    assert all(one.grad is not own for one, own in zip(step.model.parameters(), kept) if own is not None)


# Shadow steps.


@check
def a_shadow_step_leaves_everything_as_it_was():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for model, settings in (
        ("images with dropout", {"scaler": scaler}), ("language with dropout", {}), ("checkpointed, reentrant", {}),
    ):
        step = models.made(PARTS, model, **settings)
        for name in ("bf16-autocast", "channels-last", "fused-optimizer", "zero-grad-none", "sdpa"):
            gradients = [one.grad for one in step.model.parameters()]
            kept = scaler.state_dict(), getattr(step.model, "calls", None)
            before = fingerprint(step, with_values=True)
            answer = step.check(TABLE[name])
            assert not step.context.active
            same(before, fingerprint(step, with_values=True))
            assert kept == (scaler.state_dict(), getattr(step.model, "calls", None))
            assert all(one.grad is gradient for one, gradient in zip(step.model.parameters(), gradients)), answer


@check
def a_shadow_step_of_a_wrong_remedy_leaves_everything_as_it_was():
    def on(context):
        remove = context.modules[0].register_forward_pre_hook(fail).remove
        return remove

    def fail(*unused):
        raise ArithmeticError("planted")

    remedy = types.SimpleNamespace(NAME="raises", CLASS="same", on=on, applies=lambda facts: None)
    step = models.made(PARTS, "images with dropout")
    before = fingerprint(step, with_values=True)
    answer = step.check(PARTS.part("switches").Switch(remedy))
    assert answer["verdict"] == "differs" and "ArithmeticError: planted" in answer["reason"], answer
    same(before, fingerprint(step, with_values=True))


def refused(step, name, words):
    answer = step.check(TABLE[name])
    assert answer["verdict"] == "not_possible" and words in answer["reason"], answer


@check
def a_shadow_step_says_what_it_cannot_do():
    step = models.made(PARTS, "mixed")
    refused(step, "loader-workers", "acts when the script starts")
    refused(step, "channels-last", "there is nothing to switch: it has no convolution")
    step.context.release()
    refused(step, "tf32", "no gradient reached the outputs of a recorded call")

    make, batch, loss = models.MODELS["mixed"]

    class Averaging(models.Mixed):
        def forward(self, x):
            with torch.no_grad():
                self.head.bias.mul_(0.999)
            return super().forward(x)

    class Counting(models.Mixed):
        seen = [0]

        def forward(self, x):
            self.seen[0] += 1
            return super().forward(x * (1 + self.seen[0]))

    class FSDPModule(models.Mixed):
        pass

    for kind, words in (
        (Averaging, "the forward pass of Averaging changes its own parameters"),
        (Counting, "replayed twice, the script's own pass differs by"),
        (FSDPModule, "FSDPModule is distributed"),
    ):
        models.MODELS["odd"] = (kind, batch, loss)
        refused(models.made(PARTS, "odd"), "tf32", words)

    step = models.made(PARTS, "mixed")
    step.context.facts = lambda: {"own_cuda_graph": True}
    refused(step, "tf32", "CUDA graph of its own")
    step.context.optimizers = [torch.optim.LBFGS(step.model.parameters())]
    refused(step, "fused-optimizer", "computes gradients itself, in a closure")


@check
def a_recorded_step_is_the_scripts_own():
    """Recording changes no value, and is over after one step."""
    step, other = models.made(PARTS, "language with dropout"), models.Step.__new__(models.Step)
    make, batch, loss = models.MODELS["language with dropout"]
    torch.manual_seed(0)
    other.model, other.batch, other.loss, other.scaler = make(), batch, loss, None
    other.optimizer = torch.optim.AdamW(other.model.parameters(), lr=1e-3)
    for _ in range(3):
        other.step()
    pairs = zip(step.model.parameters(), other.model.parameters())
    assert all(torch.equal(one, another) for one, another in pairs)
    calls = step.context.last_calls()
    step.step()
    assert [id(call) for call in step.context.last_calls()] == [id(call) for call in calls]


def main():
    global PARTS, TABLE
    PARTS = models.hook(sys.argv[1])
    TABLE = PARTS.part("switches").table()
    wanted = sys.argv[2:]
    chosen = [one for one in CHECKS if not wanted or any(word in one.__name__ for word in wanted)]
    for one in chosen:
        one()
        print(f"passed {one.__name__.replace('_', ' ')}", flush=True)
    print(f"{len(chosen)} checks passed")


if __name__ == "__main__":
    main()
