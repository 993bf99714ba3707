"""Holds what `headroom record` says of a script against what is measured without it.

Run, on a machine with a GPU:

    python bench/scripts/race.py run --headroom target/dist/headroom --out race

Each script runs three times: as it is under the referee (step times with nothing attached, then device activity alone),
as it is under `headroom record`, and fixed under the referee. Recordings and times go to the folder `race`.

Judge, anywhere:

    python bench/scripts/race.py judge --headroom target/dist/headroom --out race

Analyzes every recording, once as it is and once with the true time withheld, and writes race/race.json.
"""
import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The fault of each script, by the name of the rule that should come first in the roadmap.
SCRIPTS = {
    "plain_fp32": "no-tensor-cores",
    "plain_small": "launch-bound",
    "plain_attention": "attention-materialised",
    "trainer_attention": "attention-materialised",
    "lightning_norms": "host-sync",
    "accelerate_optimizer": "optimizer-per-parameter",
    "vision_loader": "data-loading",
    "compiled_readback": "host-sync",
    "graphed_optimizer": "optimizer-per-parameter",
    # The second set, on which nothing was calibrated.
    "llama_eager_chain": "small-kernels-fusable",
    "trainer_collate": "data-loading",
    "lightning_vit_fp32": "no-tensor-cores",
    "accelerate_masked": "attention-materialised",
    "resnet_layout": "below-roof",
    "dcgan_items": "host-sync",
    "dit_average": "optimizer-per-parameter",
    "lm_wide_loss": "small-kernels-fusable",
    "graphed_copies": "host-copies",
    "lstm_cells": "launch-bound",
    # The third set, judged once.
    "moe_expert_loop": "launch-bound",
    "accelerate_microbatches": "launch-bound",
    "rollout_singly": "launch-bound",
    "segmentation_cpu_metric": "host-sync",
    "graphed_head_loop": "small-kernels-fusable",
    "recommender_dense_rows": "optimizer-per-parameter",
    "trainer_checkpoint": "activations-recomputed",
    "lightning_empty_cache": "host-sync",
    "compiled_island": "small-kernels-fusable",
    # The fourth set, judged once; work on padding has no rule.
    "unet_no_tf32": "no-tensor-cores",
    "video_float_on_host": "host-copies",
    "alibi_scores": "attention-materialised",
    "trainer_padding": "padding",
    "lightning_anomaly": "host-sync",
    "accelerate_tokenising": "data-loading",
    "crops_singly": "launch-bound",
    "compiled_penalty": "small-kernels-fusable",
    "graphed_odd_vocabulary": "below-roof",
    "task_backwards": "differentiated-twice",
    # The fifth set, judged once.
    "trainer_llama_fp32": "no-tensor-cores",
    "lightning_speech_loader": "data-loading",
    "accelerate_logits_to_host": "host-copies",
    "densenet_unfrozen_trunk": "unread-gradients",
    "compiled_finite_checks": "host-sync",
    "graphed_attention_weights": "attention-materialised",
    "tabular_row_by_row": "data-loading",
    "decoder_mask_on_host": "host-copies",
    "forecast_list_of_arrays": "data-loading",
    # The sixth set, judged once, before there was a rule for a forward pass that is run twice.
    "vision_one_worker": "data-loading",
    "trainer_forward_again": "forward-repeated",
    "detector_targets_by_box": "host-sync",
    "lightning_average_on_host": "host-copies",
    "accelerate_teacher_fp32": "no-tensor-cores",
    "compiled_checkpoints": "activations-recomputed",
    "graphed_loss_read": "host-sync",
    "translator_word_by_word": "launch-bound",
    "lightning_einsum_attention": "attention-materialised",
    "trainer_copied_adamw": "optimizer-per-parameter",
    # The seventh set, judged once.
    "vqvae_broadcast_distances": "small-kernels-fusable",
    "pinn_derivative_each": "differentiated-twice",
    "srgan_vgg_unfrozen": "unread-gradients",
    "compiled_unpinned_loader": "host-copies",
    "trainer_llama_odd_width": "below-roof",
    "lightning_group_per_tensor": "optimizer-per-parameter",
    "accelerate_spans_by_pair": "data-loading",
    "graphed_fp32_head": "no-tensor-cores",
    # The eighth set, judged once, before there were rules for metrics and masks.
    "reid_triplet_by_anchor": "launch-bound",
    "trainer_pictures_in_turn": "data-loading",
    "lightning_metrics_each_step": "metrics-each-step",
    "accelerate_dpo_reference": "unread-gradients",
    "compiled_tril_mask": "attention-masked",
    "graphed_full_length": "padding",
    "dice_one_hot": "small-kernels-fusable",
    "codec_default_adamw": "optimizer-per-parameter",
    # The ninth set, judged once.
    "trainer_whisper_eager": "attention-materialised",
    "muon_by_matrix": "optimizer-per-parameter",
    "lightning_pix2pix_retained": "unread-gradients",
    "retina_focal_chain": "small-kernels-fusable",
    "compiled_grpo_old_pass": "forward-repeated",
    "graphed_gru_cells": "small-kernels-fusable",
    "accelerate_volumes_in_turn": "data-loading",
    "chess_timed_phases": "host-sync",
    # The tenth set, judged once.
    "satellite_tiles_no_workers": "data-loading",
    "trainer_gpt2_one_at_a_time": "launch-bound",
    "lightning_grad_norm_items": "host-sync",
    "accelerate_prompt_encoder_unfrozen": "unread-gradients",
    "compiled_nerf_no_tf32": "no-tensor-cores",
    "graphed_unet_nchw": "below-roof",
    "atari_float_frames": "host-copies",
    "darknet_hand_mish": "small-kernels-fusable",
    # The eleventh set, judged once.
    "visits_mask_row_by_row": "host-sync",
    "trainer_bart_full_length": "padding",
    "lightning_vocoder_made_twice": "forward-repeated",
    "accelerate_clip_checkpointed": "activations-recomputed",
    "pose_heatmaps_no_workers": "data-loading",
    "compiled_seismic_lion_loop": "optimizer-per-parameter",
    "graphed_denoiser_hand_norm": "small-kernels-fusable",
    "weather_hand_attention": "attention-materialised",
    # The twelfth set, judged once.
    "meshgraph_no_tf32": "no-tensor-cores",
    "dynamics_members_in_turn": "launch-bound",
    "accelerate_motion_losses_by_item": "host-sync",
    "lightning_resnet152_adan_loop": "optimizer-per-parameter",
    "compiled_genome_letter_by_letter": "data-loading",
    "flow_spline_chain": "small-kernels-fusable",
    "clicks_odd_width": "below-roof",
    "eeg_float64_epochs": "host-copies",
    "lightning_decision_mask": "attention-masked",
    "speech_backward_each_loss": "differentiated-twice",
    "accelerate_codes_metrics_each_step": "metrics-each-step",
    "trainer_adapters_base_unfrozen": "unread-gradients",
    # The thirteenth set, judged once.
    "tagger_specaugment_items": "host-sync",
    "accelerate_reranker_fp32": "no-tensor-cores",
    "lightning_slices_from_npz": "data-loading",
    "accelerate_latents_hand_attention": "attention-materialised",
    "byol_target_by_parameter": "optimizer-per-parameter",
    "compiled_captioner_tower_unfrozen": "unread-gradients",
    "lightning_translator_random_lengths": "padding",
    "trainer_triplets_three_passes": "launch-bound",
    "trainer_gpt2_gelu_new": "small-kernels-fusable",
    "hyperspectral_pageable": "host-copies",
    "segmenter_dice_by_class": "launch-bound",
    "lightning_crowd_nchw": "below-roof",
}


def referee(script, out, more, device):
    environment = dict(os.environ, PYTHONPATH=str(HERE / "referee"), RACE_OUT=str(out), RACE_DEVICE="1" if device else "0")
    command = [sys.executable, str(HERE / f"{script}.py"), *more]
    done = finished(command, environment)
    if not out.exists():
        sys.stderr.write(f"{script} {more}: {done.stderr[-3000:]}\n")


def finished(command, environment):
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "took too long")


def record(arguments, folder, command):
    if arguments.hook is None:
        command = [str(arguments.headroom), "record", "--stop", "--output-dir", str(folder), "--", *command]
        return finished(command, os.environ)
    folder.mkdir()
    with tempfile.TemporaryDirectory() as hook:
        shutil.copy(arguments.hook, hook)
        more = {"HEADROOM_RECORD_FOLDER": str(folder.resolve()), "HEADROOM_RECORD_NOTES": hook, "HEADROOM_RECORD_STOP": "1"}
        environment = dict(os.environ, PYTHONPATH=hook, **more)
        return finished(command, environment)


def run(arguments):
    arguments.out.mkdir(parents=True, exist_ok=True)
    size = ["--small"] if arguments.small else []
    compressing = []
    for script in arguments.scripts or SCRIPTS:
        began = time.time()
        referee(script, arguments.out / f"{script}.as_is.json", size, device=True)
        referee(script, arguments.out / f"{script}.fixed.json", [*size, "--fixed"], device=False)
        folder = arguments.out / script
        shutil.rmtree(folder, ignore_errors=True)
        done = record(arguments, folder, [sys.executable, str(HERE / f"{script}.py"), *size])
        if done.returncode != 0:
            sys.stderr.write(f"{script}: {done.stderr[-3000:]}\n")
        # Compressed beside the next script, on one core of many.
        compressing += [subprocess.Popen(["gzip", "-1", str(trace)]) for trace in folder.rglob("*.pt.trace.json")]
        sys.stderr.write(f"{script}: {time.time() - began:.0f} s\n")
    for process in compressing:
        process.wait()


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def analyze(headroom, path):
    done = subprocess.run([str(headroom), "analyze", "--format", "json", str(path)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"analyze {path}: {done.stderr}")
    return json.loads(done.stdout)


def without_truth(trace, folder):
    """A copy of the trace whose header says nothing of steps without the profiler."""
    opened = gzip.open if trace.suffix == ".gz" else open
    with opened(trace, "rt") as file:
        text = file.read()
    at = text.index('"headroom_recording"')
    value = text.index("{", at)
    recording, end = json.JSONDecoder().raw_decode(text, value)
    recording["true_step_seconds"] = []
    target = Path(folder) / "withheld.pt.trace.json"
    target.write_text(text[:value] + json.dumps(recording) + text[end:])
    if recording.get("light_trace"):
        light = trace.parent / recording["light_trace"]
        light = light if light.exists() else light.with_name(light.name + ".gz")
        (Path(folder) / "light").mkdir()
        opened = gzip.open if light.suffix == ".gz" else open
        with opened(light, "rb") as source, open(Path(folder) / recording["light_trace"], "wb") as copy:
            shutil.copyfileobj(source, copy)
    return target


def judged(headroom, out, script):
    read = lambda name: json.loads((out / f"{script}.{name}.json").read_text())
    as_is, fixed = read("as_is"), read("fixed")
    now, then = median(as_is["seconds"]), median(fixed["seconds"])
    analysis = analyze(headroom, out / script)
    trace = next(path for path in (out / script).iterdir() if ".pt.trace.json" in path.name)
    with tempfile.TemporaryDirectory() as folder:
        withheld = analyze(headroom, without_truth(trace, folder))
    roadmap, true_step = analysis["roadmap"], analysis["true_step"]
    wanted = [item for item in roadmap["items"] if item["name"] == SCRIPTS[script]]
    first = roadmap["items"][0] if roadmap["items"] else None
    row = {
        "script": script,
        "fault": SCRIPTS[script],
        "as_is_milliseconds": 1e3 * now,
        "as_is_spread_milliseconds": [1e3 * min(as_is["seconds"]), 1e3 * max(as_is["seconds"])],
        "fixed_milliseconds": 1e3 * then,
        "measured_saving_share": 1 - then / true_step["seconds"],
        "recorded_true_milliseconds": 1e3 * true_step["seconds"],
        "played_milliseconds": 1e3 * true_step["played_seconds"],
        "full_profiler_milliseconds": 1e3 * true_step["recorded_seconds"],
        "light_profiler_milliseconds": 1e3 * (true_step["light_seconds"] or 0),
        "first_in_roadmap": first and first["name"],
    }
    if wanted:
        # Read-backs of several places are several entries, which the fix mends together.
        expected = sum(item["additional_expected_share"] for item in wanted)
        bound = max(sum(item["additional_share"] for item in wanted), wanted[0]["alone_share"] or 1)
        row["expected_saving_share"] = max(expected, wanted[0]["expected_share"])
        row["bound_saving_share"] = bound
        row["bound_milliseconds"] = 1e3 * true_step["seconds"] * (1 - bound)
        miss = abs(row["expected_saving_share"] - row["measured_saving_share"])
        row["expected_holds"] = miss <= max(0.03, 0.25 * abs(row["measured_saving_share"]))
        noise = 0.02 * now
        row["bound_holds"] = 1e3 * (then + noise) >= row["bound_milliseconds"]
    else:
        row["expected_holds"] = row["bound_holds"] = False
    estimate, truth = withheld["true_step"], true_step["seconds"]
    row["estimate_milliseconds"] = [1e3 * estimate[key] for key in ("lower_seconds", "seconds", "upper_seconds")]
    row["estimate_inside"] = estimate["lower_seconds"] <= truth <= estimate["upper_seconds"]
    row["estimate_miss_share"] = estimate["seconds"] / truth - 1
    if "device_alone" in as_is:
        alone = as_is["device_alone"]
        row["busy_share"] = analysis["measures"]["breakdown"]["busy_share"]
        row["busy_share_device_alone"] = alone["busy_seconds"] / alone["wall_seconds"]
        # That recording slows the host too: its work is held against the step with nothing attached. Copies from pageable memory
        # are staged by the host and slowed as well, so that they may come to more than the step; a device is never busy for more.
        row["busy_share_of_true_step"] = min(1.0, alone["busy_seconds"] / true_step["seconds"])
        row["busy_holds"] = abs(row["busy_share"] - row["busy_share_of_true_step"]) <= 0.03
    return row


def judge(arguments):
    rows = [judged(arguments.headroom, arguments.out, script) for script in arguments.scripts or SCRIPTS]
    (arguments.out / "race.json").write_text(json.dumps({"schema_version": 1, "rows": rows}, indent=2) + "\n")
    percent = lambda row, key: f"{100 * row[key]:6.1f}" if key in row else "     -"
    number = lambda row, key: f"{row[key]:8.2f}" if key in row else "       -"
    for row in rows:
        estimate = row.get("estimate_milliseconds", [0, 0, 0])
        print(
            f"{row['script']:21} as is {number(row, 'as_is_milliseconds')} fixed {number(row, 'fixed_milliseconds')}"
            f" saved {percent(row, 'measured_saving_share')}% expected {percent(row, 'expected_saving_share')}%"
            f" bound {number(row, 'bound_milliseconds')} {'ok ' if row['expected_holds'] else 'NO '}"
            f"{'ok ' if row['bound_holds'] else 'NO '} first {row['first_in_roadmap']}"
        )
        print(
            f"{'':21} truth {number(row, 'recorded_true_milliseconds')} played {number(row, 'played_milliseconds')}"
            f" full {number(row, 'full_profiler_milliseconds')}"
            f" estimate {estimate[0]:.2f} {estimate[1]:.2f} {estimate[2]:.2f}"
            f" {'inside' if row.get('estimate_inside') else 'OUTSIDE'} {percent(row, 'estimate_miss_share')}%"
            f" busy {percent(row, 'busy_share')} alone {percent(row, 'busy_share_of_true_step')}"
            f" {'ok' if row.get('busy_holds') else 'NO'}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "judge"])
    parser.add_argument("--headroom", type=Path, default=Path("target/dist/headroom"))
    parser.add_argument("--hook", type=Path, help="record with this sitecustomize.py alone, on a machine without headroom")
    parser.add_argument("--out", type=Path, default=Path("race"))
    parser.add_argument("--small", action="store_true", help="sizes for a machine without a GPU, to try the driver")
    parser.add_argument("scripts", nargs="*")
    arguments = parser.parse_intermixed_args()
    run(arguments) if arguments.what == "run" else judge(arguments)


if __name__ == "__main__":
    main()
