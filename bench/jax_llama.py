#!/usr/bin/env python3
"""The same LLaMA, trained by JAX: the whole step jitted, its state donated, fp32 master weights.

A variant is `<attention>-bf16`, attention being cudnn or xla. Answers one request a line on standard input, `tiny xla-bf16 10`
(ten timed steps), with one JSON line; what it was asked for stays warm.
"""
import functools
import json
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Beside this file lies a cuda.py, which is not the package of that name.
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]

#        hidden layers heads kv  inter  seq  batch
SIZES = {
    "tiny": (256, 4, 8, 4, 512, 128, 8),
    "small": (512, 8, 8, 4, 1104, 256, 8),
    "medium": (1024, 12, 16, 8, 3456, 512, 16),
    "large": (2048, 16, 16, 8, 11136, 1024, 8),
}
VOCAB, RATE, DECAY = 1000, 3e-4, 0.01


def main():
    import jax
    import jax.numpy as jnp
    import numpy as np

    def drawn(size):
        d, layers, heads, kv, inter, _, _ = size
        width = d // heads
        keys = iter(jax.random.split(jax.random.PRNGKey(42), 4 * layers + 2))
        matrix = lambda *sizes: 0.02 * jax.random.normal(next(keys), sizes, jnp.float32)
        layer = lambda: {
            "before_attention": jnp.ones(d), "before_mlp": jnp.ones(d), "qkv": matrix(d, d + 2 * kv * width),
            "out": matrix(d, d), "gate_up": matrix(d, 2 * inter), "down": matrix(inter, d),
        }
        return {"table": matrix(VOCAB, d), "head": matrix(d, VOCAB), "norm": jnp.ones(d), "layers": [layer() for _ in range(layers)]}

    def normed(x, gain):
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * gain).astype(x.dtype)

    def turned(x, cos, sin):
        first, second = jnp.split(x, 2, -1)
        return (x * cos + jnp.concatenate([-second, first], -1) * sin).astype(x.dtype)

    def loss_of(weights, ids, size, attention):
        d, _, heads, kv, _, seq, batch = size
        width, half = d // heads, jnp.bfloat16
        angle = jnp.arange(seq)[:, None] / 10000.0 ** (jnp.arange(0, width, 2) / width)
        angle = jnp.concatenate([angle, angle], -1)[None, :, None, :]
        cos, sin = jnp.cos(angle).astype(half), jnp.sin(angle).astype(half)
        x = weights["table"].astype(half)[ids[:, :-1]]
        for layer in weights["layers"]:
            qkv = normed(x, layer["before_attention"]) @ layer["qkv"].astype(half)
            q, k, v = jnp.split(qkv, [d, d + kv * width], -1)
            q = turned(q.reshape(batch, seq, heads, width), cos, sin)
            k = turned(k.reshape(batch, seq, kv, width), cos, sin)
            v = v.reshape(batch, seq, kv, width)
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
            x = x + mixed.reshape(batch, seq, d) @ layer["out"].astype(half)
            gate, up = jnp.split(normed(x, layer["before_mlp"]) @ layer["gate_up"].astype(half), 2, -1)
            x = x + (jax.nn.silu(gate) * up) @ layer["down"].astype(half)
        logits = (normed(x, weights["norm"]) @ weights["head"].astype(half)).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - chosen).mean()

    def step(state, ids, size, attention):
        weights, first, second, count = state
        loss, gradient = jax.value_and_grad(loss_of)(weights, ids, size, attention)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

        def updated(w, m, v):
            return w * (1 - RATE * DECAY) - RATE * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return (jax.tree.map(updated, weights, first, second), first, second, count), loss

    class Race:
        def __init__(self, name, variant):
            size, attention = SIZES[name], variant.split("-")[0]
            weights = drawn(size)
            zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
            self.state = (weights, zeros(), zeros(), jnp.zeros((), jnp.float32))
            self.step = jax.jit(functools.partial(step, size=size, attention=attention), donate_argnums=0)
            numbers = np.random.default_rng(42)
            self.batches = [jnp.asarray(numbers.integers(1, VOCAB, (size[6], size[5] + 1))) for _ in range(16)]
            self.taken = 0

        def timed(self, steps):
            times = []
            for _ in range(steps):
                start = time.perf_counter()
                self.state, self.loss = self.step(self.state, self.batches[self.taken % 16])
                jax.block_until_ready((self.state, self.loss))
                times.append(time.perf_counter() - start)
                self.taken += 1
            return times

    races = {}
    for line in sys.stdin:
        name, variant, steps = line.split()
        try:
            if (name, variant) not in races:
                races[name, variant] = Race(name, variant)
                races[name, variant].timed(5)
            race = races[name, variant]
            milliseconds = statistics.median(race.timed(int(steps))) * 1e3
            peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
            answer = {"size": name, "variant": variant, "ms_per_step": milliseconds, "peak_mb": peak,
                      "loss": float(race.loss), "jax": jax.__version__}
        except Exception as error:  # every request is answered, so that nobody waits for ever
            answer = {"size": name, "variant": variant, "error": str(error)[:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
