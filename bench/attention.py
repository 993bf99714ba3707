#!/usr/bin/env python3
"""Causal bf16 attention alone: our kernels at both levels and cuDNN through us, against PyTorch's flash and cuDNN backends.

    python3 bench/attention.py --headroom target/dist/headroom --out docs/benchmarks

Needs the release binary and a python3 with PyTorch. All sides take turns in every round; the median of the rounds counts.
Rates count useful operations: nothing above the diagonal counts. Writes the first paragraph and the tables of attention.md;
the paragraphs after them are written by hand.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import textwrap
import time

import torch

TOKENS, WIDTH = 16384, 2048
UNITS = {"TFLOP/s": 1e12, "GFLOP/s": 1e9, "MFLOP/s": 1e6, "FLOP/s": 1.0}


def shapes(lengths):
    return [(max(1, TOKENS // seq), WIDTH // head, seq, head) for head in (64, 128) for seq in lengths]


def ours(binary, level, wanted):
    """(shape, what) to rate, by `headroom device --attention`."""
    asked = ",".join(f"{batch}x{heads}x{heads}x{seq}x{head}" for batch, heads, seq, head in wanted)
    environment = dict(os.environ, HEADROOM_CUDA_LEVEL=level)
    command = [binary, "device", "--device", "cuda", "--attention", asked]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    rates = {}
    for line in answer.splitlines():
        words = line.split()
        if len(words) == 5 and words[1] in ("forward", "backward") and words[4] in UNITS:
            rates[words[0], f"{words[1]} {words[2]}"] = float(words[3]) * UNITS[words[4]]
    return rates


def graphed(run, repeats):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    return graph


def seconds(run):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3


def best(run):
    run()
    torch.cuda.synchronize()
    repeats = max(1, min(20, int(8e-3 / seconds(run))))
    graph = graphed(run, repeats)
    return min(seconds(graph.replay) for _ in range(5)) / repeats


def theirs(shape):
    """Rates of PyTorch's backends for one shape."""
    batch, heads, seq, head = shape
    make = lambda: torch.randn(batch, seq, heads, head, device="cuda").bfloat16().transpose(1, 2)
    q, k, v, slope = make(), make(), make(), make()
    scale, ops = head ** -0.5, torch.ops.aten
    flops = 2.0 * batch * heads * seq * seq * head
    rates = {}
    forward = lambda: ops._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)
    out, lse, cq, ck, mq, mk, seed, offset, _ = forward()
    backward = lambda: ops._scaled_dot_product_flash_attention_backward(
        slope, q, k, v, out, lse, cq, ck, mq, mk, 0.0, True, seed, offset, scale=scale)
    rates["forward flash"], rates["backward flash"] = flops / best(forward), 2.5 * flops / best(backward)
    torch.use_deterministic_algorithms(True)
    rates["backward flash-fixed-order"] = 2.5 * flops / best(backward)
    torch.use_deterministic_algorithms(False)
    by_cudnn = lambda: ops._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False, scale=scale)
    out2, lse2, cq2, ck2, mq2, mk2, seed2, offset2, _ = by_cudnn()
    back_by_cudnn = lambda: ops._scaled_dot_product_cudnn_attention_backward(
        slope, q, k, v, out2, lse2, seed2, offset2, None, cq2, ck2, mq2, mk2, 0.0, True, scale=scale)
    rates["forward torch-cudnn"], rates["backward torch-cudnn"] = flops / best(by_cudnn), 2.5 * flops / best(back_by_cudnn)
    return rates


FORWARD = ["ampere", "flash", "hopper", "cudnn", "torch-cudnn"]
BACKWARD = ["ampere", "flash-fixed-order", "flash", "hopper", "cudnn", "cudnn-any-order", "torch-cudnn"]


def page(wanted, found, rounds):
    """The text of attention.md: how it was measured, and a table for each direction."""
    paragraph = lambda text: textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)
    version = torch.backends.cudnn.version()
    lines = ["# CUDA: attention", "", paragraph(
        f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__.split('+')[0]}, cuDNN {version // 10000}.{version % 10000 // 100}; "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}. Causal attention in bf16, with {TOKENS:,} tokens of width {WIDTH} in total. Rates are "
        "TFLOP/s of useful operations: nothing above the diagonal counts. `ampere` and `hopper` are our kernels with the instructions of "
        "that GPU generation. `cudnn` is cuDNN called by us. The others are PyTorch's backends.")]
    measured = f"measured by `bench/attention.py`. All sides take turns; medians of {rounds} rounds"
    lines += ["", f"Forward pass, {measured}:", "", *table("forward", FORWARD, wanted, found)]
    lines += ["", paragraph(
        f"Backward pass, {measured}. `ampere`, `hopper` and `flash-fixed-order` (PyTorch with deterministic algorithms) give the same bytes "
        "on every run. `cudnn` adds in a fixed order and is left out where its workspace does not fit. The others add in any order:"),
        "", *table("backward", BACKWARD, wanted, found)]
    return "\n".join(lines) + "\n"


def table(direction, columns, wanted, found):
    lines = ["| head | sequence | " + " | ".join(columns) + " | ampere / flash |", "|---|---|" + "---|" * (len(columns) + 1)]
    for batch, heads, seq, head in wanted:
        rate = lambda column: statistics.median(found.get((f"{batch}x{heads}x{heads}x{seq}x{head}", f"{direction} {column}"), [0]))
        shown = " | ".join(f"{rate(column) / 1e12:.0f}" if rate(column) else "" for column in columns)
        ratio = rate("ampere") / rate("flash") if rate("flash") else 0
        lines.append(f"| {head} | {seq} | {shown} | {ratio:.2f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", default="target/dist/headroom")
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    binary = os.path.abspath(options.headroom)
    wanted = shapes([int(length) for length in options.lengths.split(",")])
    found = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ["HEADROOM_HOME"] = home
        for _ in range(options.rounds):
            for level, column in (("", "hopper"), ("ampere", "ampere")):
                for (shape, what), rate in ours(binary, level, wanted).items():
                    direction, by = what.split()
                    if by.startswith("ours") and by != "ours":
                        continue
                    name = f"{direction} {column}" if by == "ours" else f"{direction} {by}"
                    found.setdefault((shape, name), []).append(rate)
            for shape in wanted:
                batch, heads, seq, head = shape
                for name, rate in theirs(shape).items():
                    found.setdefault((f"{batch}x{heads}x{heads}x{seq}x{head}", name), []).append(rate)
    text = page(wanted, found, options.rounds)
    print(text)
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "attention.md"), "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
