#!/usr/bin/env python3
"""Is the CUDA backend right on this GPU? Needs only the release binary and a plain python3.

    python3 bench/cuda_exact.py --headroom target/dist/headroom --out docs/benchmarks

Every kernel against the reference in double precision, steps of nano and tiny in every precision under every pass alone and
together against the CPU, the same bytes twice (`headroom device --verify`); the reference cases of every family;
100 losses of tiny on the CPU and on the GPU; a profile of small; and compute-sanitizer over a short race where it is
installed. Writes cuda-exact.md, and the profile's trace beside it with --trace.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "crates", "training", "tests", "data")


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def losses(headroom, arguments, folder, name):
    command = [headroom, "train", *arguments, "--log-interval", "1", "--json", "--output-dir", os.path.join(folder, name)]
    done = run(command)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line["loss"] for line in lines if "loss" in line]


def apart(one, other):
    """Largest relative difference; NaN where lengths differ."""
    if len(one) != len(other) or not one:
        return float("nan")
    return max(abs(a - b) / abs(a) for a, b in zip(one, other))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", default="target/dist/headroom")
    parser.add_argument("--out", default=".")
    parser.add_argument("--verify", default="nano,tiny", help="sizes to verify, separated by commas")
    parser.add_argument("--trace", help="a folder for the profile's trace and report")
    options = parser.parse_args()
    headroom = os.path.abspath(options.headroom)
    rows = []

    def row(what, figure, tolerance):
        holds = figure <= tolerance
        rows.append((what, figure, tolerance, holds))
        print(f"{'ok  ' if holds else 'FAIL'} {what}: {figure:.2e} of {tolerance:.0e}", flush=True)

    sizes = options.verify.split(",")
    verified = run([headroom, "device", "--device", "cuda", "--verify", *sizes])
    checks = [line for line in verified.stdout.splitlines() if line.startswith(("  ok", "  FAIL"))]
    failed = [line for line in checks if line.startswith("  FAIL")]
    row(f"`headroom device --device cuda --verify {' '.join(sizes)}`: {len(checks)} checks, that fail", len(failed), 0)
    worst = {}
    for line in checks:
        words = line.split()
        if "gradients" in line and words[1] in ("nano", "tiny"):
            key = f"{words[1]} {words[2]}"
            worst[key] = max(worst.get(key, 0.0), float(words[-3]))

    with tempfile.TemporaryDirectory() as folder:
        for case in ("nano", "nano_tied", "llama3", "qwen3", "gpt2", "tree"):
            data = os.path.join(CASES, case)
            with open(os.path.join(data, "losses.json")) as file:
                stored = json.load(file)
            want, optimizer = stored["losses"], stored["optimizer"]
            adamw = ["--clip", str(optimizer["clip"]), "--eps", str(optimizer["eps"])]
            for passes in ("v1", "v2", "all"):
                have = losses(headroom, ["--device", "cuda", "--init-from", data, "--data", os.path.join(data, "expected.safetensors"),
                                         "--num-steps", "20", "--learning-rate", "3e-4", "--passes", passes, *adamw], folder, f"{case}-{passes}")
                row(f"{case} under {passes}: 20 losses against Hugging Face", apart(want, have), 1e-4)
        on = lambda device, name, more=(): losses(headroom, ["--size", "tiny", "--data", "markov", "--num-steps", "100", "--device", device,
                                                             "--passes", "all", *more], folder, name)
        cpu = on("cpu", "cpu")
        row("tiny, 100 losses on the Markov source, fp32: CPU and GPU", apart(cpu, on("cuda", "cuda")), 2e-3)
        row("tiny, 100 losses on the Markov source, bf16: CPU in fp32 and GPU", apart(cpu, on("cuda", "bf16", ["--precision", "bf16"])), 5e-2)
        again = [on("cuda", f"again{turn}", ["--precision", "bf16"]) for turn in range(2)]
        row("tiny, 100 losses, bf16: two runs differ", apart(*again), 0)
        target = options.trace or os.path.join(folder, "profile")
        profiled = run([headroom, "profile", "--device", "cuda", "--size", "small", "--passes", "all", "--precision", "bf16",
                        "--output-dir", target, "--overwrite"])
        row("`headroom profile --device cuda --size small`: exit code", profiled.returncode, 0)
        sanitizer = shutil.which("compute-sanitizer")
        if sanitizer:
            request = "".join(f"nano {passes}-{precision} 2\n" for passes in ("v1", "v2", "all") for precision in ("fp32", "bf16", "bf16-pure"))
            checked = run([sanitizer, "--tool", "memcheck", headroom, "race", "--device", "cuda", "--warmup", "3"], input=request)
            said = [line for line in checked.stdout.splitlines() if "ERROR SUMMARY" in line]
            errors = int(said[0].split()[3]) if said else -1
            row("compute-sanitizer over nano in three lists and three precisions: errors", errors if errors >= 0 else float("nan"), 0)
    gpu = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).stdout.strip()
    lines = ["# CUDA: exactness", "", f"{gpu}; {time.strftime('%Y-%m-%d', time.gmtime())}; by `bench/cuda_exact.py`.", "",
             "| what | figure | allowed | |", "|---|---|---|---|"]
    lines += [f"| {what} | {figure:.2e} | {tolerance:.0e} | {'holds' if holds else '**fails**'} |" for what, figure, tolerance, holds in rows]
    lines += ["", "Largest relative difference of any parameter's gradient from the CPU's in fp32, over all lists of passes:", "",
              "| size and precision | difference |", "|---|---|"]
    lines += [f"| {key} | {figure:.1e} |" for key, figure in sorted(worst.items())]
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "cuda-exact.md"), "w") as file:
        file.write("\n".join(lines) + "\n")
    return 0 if all(holds for *_, holds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
