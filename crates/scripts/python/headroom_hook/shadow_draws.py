"""Random numbers of a replay under a remedy that draws others: dropout is off and counted, the rest comes from a tape.

A fused attention kernel draws its dropout inside, and another type or layout draws in another order, so values cannot be
compared with dropout on. Whether it was left out can: each place is counted by its share and its number of values.
"""
import functools
import inspect

# Named in `torch`, `torch.nn.functional` and `torch._VF`.
DROPOUTS = {
    "dropout", "dropout_", "native_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_",
    "alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_",
}
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
DRAWS = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal",
    "poisson", "bernoulli_", "normal_", "uniform_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_",
}


def draws_mode(tape):
    """A mode that writes a tape (`None`), or reads the one given."""
    return mode_class()(tape)


@functools.lru_cache(maxsize=1)
def mode_class():
    import torch
    from torch.overrides import TorchFunctionMode

    class Draws(TorchFunctionMode):
        def __init__(self, tape):
            super().__init__()
            self.is_writing = tape is None
            self.tape = [] if tape is None else tape
            self.read = 0
            self.tally = []

        @property
        def missed(self):
            """How the draws differ from those on the tape, or `None`."""
            if self.is_writing or self.read == len(self.tape):
                return None
            return f"it draws {self.read} random tensors, and the script {len(self.tape)}"

        def __torch_function__(self, function, types, arguments=(), named=None):
            named = dict(named or {})
            name = getattr(function, "__name__", "")
            if name in DROPOUTS:
                arguments, named = self.dropout_off(function, arguments, named)
            elif name == "scaled_dot_product_attention":
                arguments, named = self.attention_off(arguments, named)
            elif name == "multi_head_attention_forward":
                arguments, named = self.multihead_off(function, arguments, named)
            elif name in RECURRENT:
                arguments = self.recurrent_off(arguments)
            result = function(*arguments, **named)
            return self.taped(result) if name in DRAWS else result

        def dropped(self, share, count):
            if share:
                self.tally.append((round(float(share), 6), int(count)))

        def dropout_off(self, function, arguments, named):
            values = dict(zip(("input", "p", "training"), arguments), **named)
            is_training = values.get("training", values.get("train", True))
            if not is_training:
                return arguments, named
            self.dropped(values.get("p", 0.5), values["input"].numel())
            if len(arguments) > 1:
                return (arguments[0], 0.0, *arguments[2:]), named
            return arguments, dict(named, p=0.0)

        def attention_off(self, arguments, named):
            values = dict(zip(("query", "key", "value", "attn_mask", "dropout_p"), arguments), **named)
            query, key = values["query"], values["key"]
            self.dropped(values.get("dropout_p", 0.0), query.numel() // query.shape[-1] * key.shape[-2])
            if len(arguments) > 4:
                return (*arguments[:4], 0.0, *arguments[5:]), named
            return arguments, dict(named, dropout_p=0.0)

        def multihead_off(self, function, arguments, named):
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.apply_defaults()
            values = bound.arguments
            if values["training"]:
                query, key = values["query"], values["key"]
                count = query.numel() // query.shape[-1] * key.shape[0] * values["num_heads"]
                self.dropped(values["dropout_p"], count)
            values["dropout_p"] = 0.0
            return bound.args, bound.kwargs

        def recurrent_off(self, arguments):
            """The share is the only float, and the next argument says whether it is used."""
            which = next((at for at, one in enumerate(arguments) if type(one) is float), None)
            if which is None or not arguments[which + 1]:
                return arguments
            self.dropped(arguments[which], arguments[0].numel() * arguments[which - 1])
            return (*arguments[:which], 0.0, *arguments[which + 1 :])

        def taped(self, result):
            if self.is_writing:
                self.tape.append(result.detach().clone())
                return result
            at, self.read = self.read, self.read + 1
            if at < len(self.tape) and self.tape[at].shape == result.shape:
                with torch.no_grad():
                    result.copy_(self.tape[at])
            return result

    return Draws
