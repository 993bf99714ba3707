"""Random numbers of a replay under a remedy that draws others: dropout is off and counted, the rest comes from a tape.

A fused attention kernel draws its dropout inside, another type or layout draws in another order, and compiled code moves
draws to another device, so values cannot be compared with dropout on. Whether it was left out can: each place is counted by
its share and its number of values.
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


class Dropouts:
    """Takes the dropout out of calls; their arguments are tensors, or nodes of a graph."""

    def __init__(self):
        self.tally = []

    def without(self, name, function, arguments, named):
        """The call's arguments without its dropout."""
        if name in DROPOUTS:
            return self.dropout_off(arguments, named)
        if name == "scaled_dot_product_attention":
            return self.attention_off(arguments, named)
        if name == "multi_head_attention_forward":
            return self.multihead_off(function, arguments, named)
        if name in RECURRENT:
            return self.recurrent_off(arguments), named
        return arguments, named

    def dropped(self, share, count):
        if share:
            self.tally.append((round(float(share), 6), int(count)))

    def dropout_off(self, arguments, named):
        values = dict(zip(("input", "p", "training"), arguments), **named)
        is_training = values.get("training", values.get("train", True))
        if not is_training:
            return arguments, named
        self.dropped(values.get("p", 0.5), shape_of(values["input"]).numel())
        if len(arguments) > 1:
            return (arguments[0], 0.0, *arguments[2:]), named
        return arguments, dict(named, p=0.0)

    def attention_off(self, arguments, named):
        values = dict(zip(("query", "key", "value", "attn_mask", "dropout_p"), arguments), **named)
        query, key = shape_of(values["query"]), shape_of(values["key"])
        self.dropped(values.get("dropout_p", 0.0), query.numel() // query[-1] * key[-2])
        if len(arguments) > 4:
            return (*arguments[:4], 0.0, *arguments[5:]), named
        return arguments, dict(named, dropout_p=0.0)

    def multihead_off(self, function, arguments, named):
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        values = bound.arguments
        if values["training"]:
            query, key = shape_of(values["query"]), shape_of(values["key"])
            self.dropped(values["dropout_p"], query.numel() // query[-1] * key[0] * values["num_heads"])
        values["dropout_p"] = 0.0
        return bound.args, bound.kwargs

    def recurrent_off(self, arguments):
        """The share is the only float, and the next argument says whether it is used."""
        which = next((at for at, one in enumerate(arguments) if type(one) is float), None)
        if which is None or not arguments[which + 1]:
            return arguments
        self.dropped(arguments[which], shape_of(arguments[0]).numel() * arguments[which - 1])
        return (*arguments[:which], 0.0, *arguments[which + 1 :])


def shape_of(one):
    meta = getattr(one, "meta", None)
    return (meta["example_value"] if isinstance(meta, dict) else one).shape


@functools.lru_cache(maxsize=1)
def mode_class():
    import torch
    from torch.overrides import TorchFunctionMode

    class Draws(Dropouts, TorchFunctionMode):
        def __init__(self, tape):
            Dropouts.__init__(self)
            TorchFunctionMode.__init__(self)
            self.is_writing = tape is None
            self.tape = [] if tape is None else tape
            self.read = 0
            # Why compiled code cannot read the tape.
            self.why_not = None

        @property
        def missed(self):
            """How the draws differ from those on the tape, or `None`."""
            if self.is_writing or self.read == len(self.tape):
                return None
            return f"it draws {self.read} random tensors, and the script {len(self.tape)}"

        def __torch_function__(self, function, types, arguments=(), named=None):
            name = getattr(function, "__name__", "")
            arguments, named = self.without(name, function, arguments, dict(named or {}))
            result = function(*arguments, **named)
            return self.taped(result) if name in DRAWS else result

        def taped(self, result):
            if self.is_writing:
                self.tape.append(result.detach().clone())
                return result
            at, self.read = self.read, self.read + 1
            if at < len(self.tape) and self.tape[at].shape == result.shape:
                with torch.no_grad():
                    result.copy_(self.tape[at])
            return result

        def read_for(self, taped):
            """The next tensors of the tape, for one run of a graph that takes those that it would draw as more inputs."""
            self.why_not = self.why_not or taped.why_not
            self.tally += taped.tally
            at, self.read = self.read, self.read + len(taped.shapes)
            found = self.tape[at : self.read]
            if [tuple(one.shape) for one in found] != taped.shapes:
                self.why_not = self.why_not or "it draws random tensors in another order"
                found = taped.drawn
            # The graph may write to them.
            return [one.clone() for one in found]

    return Draws


def outside_of_modes(compiled):
    """A call of compiled code without the modes that are active, which would be traced."""

    def run(*arguments, **named):
        from torch.overrides import _pop_mode_temporarily

        with _pop_mode_temporarily():
            return compiled(*arguments, **named)

    return run


class TapedGraph(Dropouts):
    """Drawn by one graph: shapes in order, dropout by place, and tensors that stand for them."""

    def __init__(self):
        super().__init__()
        self.shapes, self.drawn = [], []
        self.why_not = None


def taped_graph(module, inputs):
    """A copy of a captured graph without dropout, and with its random tensors as more inputs. Returns what it draws, the copy,
    and all inputs."""
    import torch

    taped, more = TapedGraph(), []
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    mode = next((one.fake_mode for one in inputs if hasattr(one, "fake_mode")), None)
    last = next((node for node in reversed(graph.nodes) if node.op == "placeholder"), None)
    for part in module.modules():
        nodes = part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ()
        if part is not module and any(name_of(node) in DRAWS | DROPOUTS for node in nodes):
            taped.why_not = "random numbers are drawn in a checkpoint or branch of the compiled code"
            return taped, module, inputs
    for node in list(graph.nodes):
        name = name_of(node)
        if name:
            node.args, node.kwargs = taped.without(name, node.target, node.args, dict(node.kwargs))
        if name not in DRAWS:
            continue
        value = node.meta["example_value"]
        drawn = torch.zeros(tuple(int(size) for size in value.shape), dtype=value.dtype, device=value.device)
        taped.shapes.append(tuple(drawn.shape))
        taped.drawn.append(drawn)
        with graph.inserting_before(None) if last is None else graph.inserting_after(last):
            last = graph.placeholder(f"taped_{len(more)}")
        more.append(drawn if mode is None else mode.from_tensor(drawn, static_shapes=True))
        last.meta["example_value"] = more[-1]
        if name.endswith("_"):
            with graph.inserting_after(node):
                copied = graph.call_method("copy_", (node, last))
            copied.meta = dict(node.meta)
            node.replace_all_uses_with(copied, delete_user_cb=lambda user, copied=copied: user is not copied)
        else:
            node.replace_all_uses_with(last)
            graph.erase_node(node)
    copy = torch.fx.GraphModule(module, graph)
    copy.meta = {}
    return taped, copy, [*inputs, *more]


def name_of(node):
    if node.op not in ("call_function", "call_method"):
        return ""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
