"""Perturbs the unchanged script a little, to see how far its losses drift apart without a real change.

Weights are perturbed at random from the end of one step until the optimizer takes the next, differently in every step,
as if each GEMM rounded them. The optimizer gets the original weights back. The script's random numbers are not
affected.

Perturbed dropout drops as many values: on a device with other random numbers, on the host with the same ones in another
order, since loading draws from the same generator there.
"""
import functools
import os
import weakref

SHARE = float(os.environ.get("HEADROOM_MEASURE_MOVE_WEIGHTS", "0"))
NUMBER = int(os.environ.get("HEADROOM_MEASURE_MOVE_NUMBER", "1"))
DROPOUT = int(os.environ.get("HEADROOM_MEASURE_OTHER_DROPOUT", "0"))


def watch(moments, meter):
    """Failures are reported to `meter`."""
    if SHARE:
        weights = Weights()
        guarded = functools.partial(SHARED.guarded, listener=meter)
        moments.at_first_forward.append((2, 0, lambda module, *unused: guarded(weights.found, module)))
        moments.at_mark.append(lambda number: guarded(weights.move_all, number))
        SHARED.when_loaded(
            "torch.optim.optimizer",
            lambda module: module.register_optimizer_step_pre_hook(lambda one, *unused: guarded(weights.restore, one)),
        )
    if DROPOUT:
        SHARED.when_loaded("torch.nn.functional", reorder_dropout)
        moments.at_first_forward.append((2, 1, lambda module, *unused: SHARED.guarded(seed_device, module, listener=meter)))


class Weights:
    def __init__(self):
        self.parameters = []
        # Indices into `parameters`, by identity; and the perturbed ones, with the step whose random numbers were used.
        self.places = {}
        self.moved = {}
        self.step = 0

    def found(self, module):
        import torch

        for parameter in module.parameters():
            if torch.is_floating_point(parameter) and id(parameter) not in self.places:
                self.places[id(parameter)] = len(self.parameters)
                self.parameters.append(weakref.ref(parameter))
                self.move(len(self.parameters) - 1)

    def factor(self, parameter, which, step):
        import torch

        generator = torch.Generator(parameter.device)
        # Within 31 bits: the host's generator uses no more.
        generator.manual_seed((1_000_003 * NUMBER + 4_099 * step + 65_537 * which) % (1 << 31))
        noise = torch.randn(parameter.shape, generator=generator, device=parameter.device, dtype=parameter.dtype)
        return noise.mul_(SHARE).add_(1)

    def move(self, which):
        import torch

        parameter = self.parameters[which]()
        if parameter is not None and which not in self.moved:
            self.moved[which] = self.step
            with torch.no_grad():
                parameter.mul_(self.factor(parameter, which, self.step))

    def move_all(self, step):
        """Called after a step. Parameters of an optimizer that did not step are still moved, and may be in a graph."""
        self.step = step
        for which in range(len(self.parameters)):
            self.move(which)

    def restore(self, optimizer):
        """Restores only the parameters that this optimizer changes anyway."""
        import torch

        for group in optimizer.param_groups:
            for parameter in group["params"]:
                which = self.places.get(id(parameter))
                if which in self.moved:
                    with torch.no_grad():
                        parameter.div_(self.factor(parameter, which, self.moved.pop(which)))


def seed_device(module):
    import torch

    if any(parameter.is_cuda for parameter in module.parameters()):
        torch.cuda.manual_seed_all(20011 + DROPOUT)


def reorder_dropout(functional):
    original = functional.dropout

    @functools.wraps(original)
    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or not p or input.is_cuda:
            return original(input, p, training, inplace)
        import torch

        kept = original(torch.ones_like(input), p, True)
        return input * kept.reshape(-1).roll(7919 * DROPOUT).reshape(input.shape)

    functional.dropout = dropout
