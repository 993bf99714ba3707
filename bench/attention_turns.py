#!/usr/bin/env python3
"""Attention at the level of Ampere, kernels alone: forward and backward against PyTorch's flash, in turns in one process.

    python3 bench/attention_turns.py --out docs/benchmarks

Needs a python3 with CuPy and PyTorch, and the kernels' sources beside this folder. `turns` adds gradients in a fixed order, `any-order` as
they come (`--no-deterministic`). `flash-fixed-order` is PyTorch with deterministic algorithms. Results are compared with flash's. Writes
attention-turns.md.
"""
import argparse
import concurrent.futures
import os
import statistics
import subprocess
import sys
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Beside this file lies a cuda.py, which is not the package of that name.
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]

import cupy
import torch

KERNELS = os.path.join(HERE, "..", "crates", "engine", "src", "cuda", "kernels")
PARTS = ["types.cuh", "flash_instructions.cuh", "flash_tiles.cuh", "flash_mma.cuh"]
UNITS = {"forward": ("flash_forward_mma.cu", []), "turns": ("flash_backward_mma.cu", []), "any-order": ("flash_backward_mma.cu", ["-DANY_ORDER=1"])}
HEADS, TOKENS, WIDTH = (64, 128), 16384, 2048
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384)


def module(head, unit):
    name, options = UNITS[unit]
    text = "\n".join(open(os.path.join(KERNELS, part)).read() for part in [*PARTS, name])
    return cupy.RawModule(code=text, options=("-std=c++17", "-default-device", f"-DHEAD_DIM={head}", *options))


def compile_all():
    """Compiles each unit in a process of its own; CuPy caches the results."""
    jobs = [[sys.executable, os.path.abspath(__file__), "--compile", f"{head}:{unit}"] for head in HEADS for unit in UNITS]
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        for done in pool.map(lambda job: subprocess.run(job), jobs):
            done.check_returncode()


def seconds(run, times):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / times


def relative(have, want):
    return float((have.float() - want.float()).norm() / want.float().norm())


class Case:
    """One shape: our launches and PyTorch's, on the same numbers."""

    def __init__(self, head, seq):
        self.head, self.seq, self.batch, self.heads = head, seq, max(1, TOKENS // seq), WIDTH // head
        self.scale = head**-0.5
        make = lambda: torch.randn(self.batch, seq, self.heads, head, device="cuda").bfloat16()
        self.q, self.k, self.v, self.dout = (make() for _ in range(4))
        self.forward_of_torch = self.flash()
        self.out, self.lse = self.forward_of_torch[0].transpose(1, 2).contiguous(), self.forward_of_torch[1].contiguous()
        self.mine, self.mine_lse = torch.zeros_like(self.out), torch.zeros_like(self.lse)
        self.gradients = [torch.zeros_like(self.q) for _ in range(3)]
        tiles = -(-seq // 64)
        self.delta = torch.zeros(self.batch * self.heads * seq, device="cuda")
        self.partial = torch.zeros(self.batch * self.heads * tiles * 64 * max(64, head), device="cuda")
        self.turns = torch.zeros(1 + self.batch * self.heads * tiles, dtype=torch.int32, device="cuda")

    def flash(self):
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=self.scale)

    def flash_gradients(self):
        q, k, v, dout = (x.transpose(1, 2) for x in (self.q, self.k, self.v, self.dout))
        out, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = self.forward_of_torch
        backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
        return backward(dout, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset, scale=self.scale)

    def fixed_order(self):
        torch.use_deterministic_algorithms(True)
        gradients = self.flash_gradients()
        torch.use_deterministic_algorithms(False)
        return gradients

    def numbers(self, pitches):
        sizes = [self.batch, self.heads, self.heads, self.seq] + [WIDTH] * pitches
        return [cupy.int32(size) for size in sizes]

    @staticmethod
    def pointers(tensors):
        return [cupy.uint64(tensor.data_ptr()) for tensor in tensors] + [cupy.uint64(0)] * 2

    def tile_bytes(self):
        return 8192 * -(-self.head // 64)

    def forward(self, unit):
        kernel = unit.get_function("flash_forward_mma_bf16")
        shared = 4 * self.tile_bytes() + 1024
        kernel.max_dynamic_shared_size_bytes = shared
        arguments = self.pointers([self.q, self.k, self.v, self.mine, self.mine_lse]) + self.numbers(4) + [cupy.float32(self.scale)]
        blocks = -(-self.seq // 128) * self.batch * self.heads
        return lambda: kernel((blocks,), (128,), tuple(arguments), shared_mem=shared)

    def backward(self, unit, any_order):
        kernel, delta = unit.get_function("flash_backward_mma_bf16"), unit.get_function("flash_delta_mma_bf16")
        queries = unit.get_function("flash_queries_mma_bf16") if any_order else None
        threads, weights = (256, 2) if self.head > 64 else (128, 1)
        shared = 8 * self.tile_bytes() + 2 * 8192 * weights + 2 * 512 + 1024
        kernel.max_dynamic_shared_size_bytes = shared
        tensors = [self.q, self.k, self.v, self.out, self.dout, self.lse, self.delta, *self.gradients]
        arguments = self.pointers(tensors) + self.numbers(8) + [cupy.int32(0), cupy.float32(self.scale)]
        arguments = tuple(arguments + [cupy.uint64(self.partial.data_ptr()), cupy.uint64(self.turns.data_ptr())])
        rows, tiles = -(-self.batch * self.seq * self.heads // 32), self.batch * self.heads * -(-self.seq // 64)
        blocks = -(-self.seq // 128) * self.batch * self.heads

        def run():
            delta((rows,), (256,), arguments)
            kernel((blocks,), (threads,), arguments, shared_mem=shared)
            if queries:
                queries((tiles,), (threads,), arguments)

        return run

    def check_forward(self, run):
        run()
        assert relative(self.mine, self.out) < 5e-3, "forward differs from flash"

    def check_backward(self, run, same_twice):
        for gradient in self.gradients:
            gradient.zero_()
        run()
        first = [gradient.clone() for gradient in self.gradients]
        for have, want in zip(first, self.flash_gradients()):
            assert relative(have, want.transpose(1, 2)) < 5e-3, "gradients differ from flash's"
        if same_twice:
            run()
            assert all(map(torch.equal, first, self.gradients)), "other bytes the second time"

    def rates(self, units, rounds):
        ours = {"turns": self.backward(units["turns"], False), "any-order": self.backward(units["any-order"], True)}
        forward = self.forward(units["forward"])
        self.check_forward(forward)
        self.check_backward(ours["turns"], True)
        self.check_backward(ours["any-order"], False)
        backward = {**ours, "flash": self.flash_gradients, "flash-fixed-order": self.fixed_order}
        # Useful products: two forward, five backward; half of the scores are above the diagonal.
        work = self.batch * self.heads * self.seq**2 * self.head
        return in_turns({"ampere": forward, "flash": self.flash}, 2 * work, rounds), in_turns(backward, 5 * work, rounds)


def in_turns(runs, flops, rounds):
    times = {name: max(2, int(6e-3 / seconds(run, 2))) for name, run in runs.items()}
    took = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            took[name].append(seconds(run, times[name]))
    return {name: flops / statistics.median(one) / 1e12 for name, one in took.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        head, unit = options.compile.split(":")
        module(int(head), unit).get_function("flash_forward_mma_bf16" if unit == "forward" else "flash_backward_mma_bf16")
        return
    compile_all()
    cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream).use()
    about = (f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}; {time.strftime('%Y-%m-%d', time.gmtime())}; by "
             f"`bench/attention_turns.py`. Causal attention in bf16, with {TOKENS} tokens of width {WIDTH} in total. Rates are TFLOP/s of useful "
             "operations: nothing above the diagonal counts. Only the kernels are timed, and all sides take turns in one process; each figure is "
             f"the median of {options.rounds} rounds. `forward`, `turns` and `any-order` are our kernels. The backward pass `turns` adds gradients "
             "in a fixed order, and `any-order` adds them as they come. `flash` is PyTorch's flash attention, and `flash-fixed-order` is its "
             "backward pass with deterministic algorithms.")
    lines = ["# CUDA: attention at the level of Ampere", "", textwrap.fill(about, 140, break_long_words=False, break_on_hyphens=False), "",
             "| head | sequence | forward | flash | ratio | turns | flash-fixed-order | ratio | any-order | flash | turns / flash | any-order / flash |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for head in HEADS:
        units = {unit: module(head, unit) for unit in UNITS}
        for seq in SEQUENCES:
            forward, backward = Case(head, seq).rates(units, options.rounds)
            ratio = lambda rates, one, other: f"{rates[one] / rates[other]:.2f}"
            cells = [head, seq, f"{forward['ampere']:.0f}", f"{forward['flash']:.0f}", ratio(forward, "ampere", "flash"),
                     f"{backward['turns']:.0f}", f"{backward['flash-fixed-order']:.0f}", ratio(backward, "turns", "flash-fixed-order"),
                     f"{backward['any-order']:.0f}", f"{backward['flash']:.0f}", ratio(backward, "turns", "flash"), ratio(backward, "any-order", "flash")]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
            print(lines[-1], flush=True)
            torch.cuda.empty_cache()
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "attention-turns.md"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
