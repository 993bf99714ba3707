#!/usr/bin/env python3
"""RMSNorm's backward pass and AdamW alone, compiled from our sources: bytes per second against a copy of the device's memory.

    python3 bench/kernels.py --out docs/benchmarks

Needs a python3 with CuPy and PyTorch, and the kernels' sources beside this folder. Kernels are launched as the backend launches them.
AdamW is also timed with other block sizes and prefetch depths, and beside PyTorch's fused AdamW. Writes kernels.md.
"""
import argparse
import os
import statistics
import sys
import textwrap
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Beside this file lies a cuda.py, which is not the package of that name.
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]

import cupy
import torch

KERNELS = os.path.join(HERE, "..", "crates", "engine", "src", "cuda", "kernels")
LAUNCHES = 16
# As the backend has it.
NORM_BLOCKS = 2
MULTIPROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count


def source(name):
    parts = ["types.cuh", "rows.cuh", name]
    return "\n".join(open(os.path.join(KERNELS, part)).read() for part in parts)


def module(text, options):
    return cupy.RawModule(code=text, options=("-std=c++17", "-default-device", *options))


STREAM = cupy.cuda.Stream(non_blocking=True)


def seconds(run):
    """The median of nine replays of a graph of many launches, without the host's time."""
    cupy.cuda.Device().synchronize()
    with STREAM:
        run()
        STREAM.begin_capture()
        for _ in range(LAUNCHES):
            run()
        graph = STREAM.end_capture()
        took = []
        for _ in range(10):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(STREAM)
            graph.launch(STREAM)
            end.record(STREAM)
            end.synchronize()
            took.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3 / LAUNCHES)
    return statistics.median(took[1:])


def copied():
    a, b = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    took = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(LAUNCHES):
            b.copy_(a)
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) * 1e-3 / LAUNCHES)
    return 2 * a.nbytes / statistics.median(took[1:])


def norm_gradient(rows, cols, with_sum):
    """Bytes per second of the kernel, alone or with the sum of its lines behind it, in bf16 with a second gradient."""
    made = module(source("norm.cu"), ["-DACT_BF16"])
    packs = cols // 8
    each = 1 if packs <= 512 else 2 if packs <= 1024 else 4
    threads = (-(-packs // each) + 31) // 32 * 32
    suffix = {1: "v1" if threads <= 256 else "w1", 2: "v2", 4: "v4"}[each]
    per_block, stages = min(8, max(1, 256 // threads)), 3 if suffix == "v1" else 2
    items, most = -(-rows // per_block), NORM_BLOCKS * MULTIPROCESSORS
    blocks = -(-items // -(-items // most))
    kernel, total = made.get_function(f"rms_norm_grad_{suffix}"), made.get_function("sum_lines")
    # Several sets, so that the cache does not hold them.
    sets = max(2, min(8, int(700e6 / (rows * cols * 8))))
    random = lambda: cupy.asarray(torch.randn(rows, cols).bfloat16().view(torch.int16).numpy())
    data = [[random() for _ in range(3)] + [cupy.zeros((rows, cols), cupy.int16)] for _ in range(sets)]
    weight, partial, dweight = cupy.ones(cols, cupy.float32), cupy.zeros(blocks * cols, cupy.float32), cupy.zeros(cols, cupy.float32)
    shared = 4096 + max(stages * 3 * each * 16 * threads * per_block, per_block * cols * 4)
    kernel.max_dynamic_shared_size_bytes = shared
    u32, turn = cupy.uint32, [0]

    def run():
        x, dy, also, dx = data[turn[0] % sets]
        turn[0] += 1
        arguments = (x, weight, dy, also, dx, partial, u32(rows), u32(cols), cupy.float32(1e-6), u32(stages))
        kernel((blocks,), (threads, per_block), arguments, shared_mem=shared)
        if with_sum:
            total((-(-cols // 16),), (16, 32), (partial, dweight, u32(blocks), u32(cols)))

    return 4 * rows * cols * 2 / seconds(run)


def adamw(elements, chunk, ahead=2):
    """Bytes per second with float weights and moments, and gradients and copies in bf16."""
    text = source("optimizer.cu").replace("AHEAD = 2", f"AHEAD = {ahead}")
    kernel = module(text, [f"-DCHUNK={chunk}", "-DGRADIENT_BF16"]).get_function("adamw")
    w, m = cupy.ones(elements, cupy.float32), cupy.ones(elements, cupy.float32) * 1e-3
    v, g, half = cupy.ones(elements, cupy.float32) * 1e-6, cupy.full(elements, 0x3A83, cupy.uint16), cupy.zeros(elements, cupy.uint16)
    tensor = cupy.asarray([w.data.ptr, m.data.ptr, v.data.ptr, g.data.ptr, half.data.ptr, elements, 1, 0, 1], dtype=cupy.uint64)
    count = -(-elements // chunk)
    chunks = cupy.arange(count, dtype=cupy.uint64) << cupy.uint64(32)
    rates = cupy.asarray([1e-4, 0.5, 0.5], dtype=cupy.float32)
    f = cupy.float32
    arguments = (tensor, chunks, rates, cupy.uint32(0), cupy.uint64(0), f(0.9), f(0.1), f(0.999), f(0.001), f(1e-8), f(0.01), f(0.01))
    return 28 * elements / seconds(lambda: kernel((count,), (256,), arguments))


def adamw_by_torch(elements):
    w = torch.ones(elements, device="cuda", requires_grad=True)
    w.grad = torch.full_like(w, 1e-3)
    optimizer = torch.optim.AdamW([w], lr=1e-4, weight_decay=0.01, fused=True)
    optimizer.step()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    took = []
    for _ in range(9):
        start.record()
        for _ in range(4):
            optimizer.step()
        end.record()
        torch.cuda.synchronize()
        took.append(start.elapsed_time(end) * 1e-3 / 4)
    return 28 * elements / statistics.median(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    copy = copied()
    rate = lambda bytes_per_second: f"{bytes_per_second / 1e12:.2f} ({100 * bytes_per_second / copy:.0f}%)"
    paragraph = lambda text: textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)
    lines = ["# CUDA: kernels that go through memory", "", paragraph(
             f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}; {time.strftime('%Y-%m-%d', time.gmtime())}; by `bench/kernels.py`. "
             "Rates are TB/s of the bytes that must be moved. In parentheses is their share of the rate of a device copy, "
             f"{copy / 1e12:.2f} TB/s (bytes read plus bytes written)."), "", paragraph(
             "RMSNorm backward with a residual gradient, bf16. Each block writes one line of partial sums for the weight gradient. One kernel "
             "adds these lines for all norms at the end of the backward pass. Where the lines take too much memory, a kernel right after each "
             "norm adds them instead:"), "",
             "| rows × columns | alone | with the sum behind it |", "|---|---|---|"]
    for rows, cols in [(1024, 256), (2048, 512), (8192, 1024), (8192, 2048), (8192, 4096), (8192, 8192)]:
        lines.append(f"| {rows} × {cols} | " + " | ".join(rate(norm_gradient(rows, cols, with_sum)) for with_sum in (False, True)) + " |")
        print(lines[-1], flush=True)
    lines += ["", paragraph(
              "AdamW with float weights and moments, and gradients and weight copies in bf16. The column heads give the elements per block and "
              "the packs of four elements that each thread has in flight. Our sources use 4096 and 2 below 32 Mi elements, and 16384 and 2 "
              "above:"), "",
              "| elements | 2048, 2 | 4096, 2 | 16384, 2 | 16384, 4 | 8192, 4 | PyTorch's fused |", "|---|---|---|---|---|---|---|"]
    for elements in (3 << 20, 21 << 20, 160 << 20, 640 << 20):
        found = [adamw(elements, chunk, ahead) for chunk, ahead in ((2048, 2), (4096, 2), (16384, 2), (16384, 4), (8192, 4))]
        lines.append(f"| {elements} | " + " | ".join(map(rate, [*found, adamw_by_torch(elements)])) + " |")
        print(lines[-1], flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "kernels.md"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
