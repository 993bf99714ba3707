//! The course as one table: record sheets and marks are both derived from it, and a test compares its commands with the
//! pages of `docs/workshop`.

use super::Unit::{Change, Count, Entries, Mebibytes, Number, Percent, Rate, Seconds, Share, Times, Words};
use super::figures::{
    BATCH_POINTS, BOTTLENECKS, PROFILE, RECORDED, SEQUENCE_POINTS, SIZES, SIZES_OF_A_GPU, SPEED, TOP_TEN, TOP_THREE,
    VERSIONS, analyzed, answered, compared, kept, printed,
};
use super::{Agreement, Expected, ExpectedRun, Machines, Part, Step, Training, Writes};
use headroom_record::flops::FLOPS_FILE as FLOPS;
use headroom_record::intensity::INTENSITY_FILE as INTENSITY;
use headroom_record::k1::K1_FILE as K1;
use headroom_record::k1_speed::K1_SPEED_FILE as K1_SPEED;
use headroom_record::k1_tree::K1_TREE_FILE as K1_TREE;
use headroom_record::memory::MEMORY_FILE as MEMORY;
use headroom_record::operators::OPERATORS_FILE as OPERATORS;
use headroom_record::performance::PERFORMANCE_FILE as PERFORMANCE;
use headroom_record::scaling::SCALING_FILE as SCALING;
use headroom_record::study::STUDY_FILE as STUDY;
use headroom_record::validation::VALIDATION_FILE as VALIDATION;

const fn run(folder: &'static str, holds: Expected) -> Option<ExpectedRun> {
    Some(ExpectedRun { folder, holds, machines: Machines::All })
}

const fn gpu_run(folder: &'static str, holds: Expected) -> Option<ExpectedRun> {
    Some(ExpectedRun { folder, holds, machines: Machines::Gpu })
}

const fn cpu_run(folder: &'static str, holds: Expected) -> Option<ExpectedRun> {
    Some(ExpectedRun { folder, holds, machines: Machines::Cpu })
}

const fn tiny(passes: &'static str, steps: u64, writes: Writes) -> Expected {
    Expected::Training(Training { size: "tiny", passes, steps, writes, within_mb: None })
}

/// The recordings of part 6 that its last step compares.
const MENDED_BY_HAND: [&str; 2] = ["runs/torch-before", "runs/torch-fixed"];

const BATCHES: &[u64] = &[4, 8, 16];
const SEQUENCES: &[u64] = &[64, 128, 256, 512];

pub const PARTS: &[Part] = &[
    Part {
        number: 0,
        title: "The model, by hand",
        steps: &[Step {
            title: "Derive the figures, then profile eight steps",
            command: "headroom profile --size tiny --passes v1 --num-steps 8 --output-dir runs/by-hand",
            run: run("runs/by-hand", tiny("v1", 8, Writes::Profile)),
            figures: &[&[
                kept("parameters", FLOPS, "model_info.total_params", Count),
                kept("FLOPs forward", FLOPS, "flops_analysis.forward_flops", Count),
                kept("FLOPs backward", FLOPS, "flops_analysis.backward_flops", Count),
                kept("FLOPs of the optimizer", FLOPS, "flops_analysis.optimizer_flops", Count),
                kept("FLOPs per step that the model needs", FLOPS, "flops_analysis.needed_flops_per_step", Count),
                kept("memory of the parameters", MEMORY, "by_category.parameters", Mebibytes),
                kept("memory of the optimizer state", MEMORY, "by_category.optimizer_state", Mebibytes),
                kept("memory of the activations", MEMORY, "by_category.activations", Mebibytes),
                kept("largest tensor", MEMORY, "largest_tensor.mb", Mebibytes),
                kept("made by", MEMORY, "largest_tensor.name", Words),
                kept("kernels per step", OPERATORS, "patterns.kernels_per_step", Count),
            ]],
        }],
        agreements: &[],
    },
    Part {
        number: 1,
        title: "Baseline",
        steps: &[
            Step {
                title: "Train without a profiler",
                command: "headroom train --size tiny --passes v1 --num-steps 20 --output-dir runs/plain --name plain",
                run: run("runs/plain", tiny("v1", 20, Writes::Nothing)),
                figures: &[SPEED],
            },
            Step {
                title: "Train with everything recorded",
                command: "headroom profile --size tiny --passes v1 --num-steps 20 --output-dir runs/baseline \
                    --name baseline",
                run: run("runs/baseline", tiny("v1", 20, Writes::Profile)),
                figures: &[
                    PROFILE,
                    TOP_THREE,
                    &[
                        kept("attention", OPERATORS, "patterns.attention_percent", Percent),
                        kept("feed-forward", OPERATORS, "patterns.ffn_percent", Percent),
                    ],
                ],
            },
            Step {
                title: "Compare the two runs",
                command: "headroom runs compare plain baseline",
                run: None,
                figures: &[&[
                    printed("change of the time per step"),
                    printed("its 95% interval"),
                    answered("does the interval exclude 0?"),
                ]],
            },
            Step {
                title: "Two sizes",
                command: "headroom study tiny small --versions v1 --num-steps 10 --output-dir runs/sizes",
                run: run("runs/sizes", Expected::Study { sizes: &["tiny", "small"], versions: &["v1"] }),
                figures: &[
                    SIZES,
                    &[
                        kept(
                            "samples per second grow as parameters to the power",
                            STUDY,
                            "analysis.0.throughput_exponent",
                            Number,
                        ),
                        kept("memory grows as parameters to the power", STUDY, "analysis.0.memory_exponent", Number),
                    ],
                ],
            },
            Step {
                title: "All sizes, predicted",
                command: "headroom study all --versions v1 --device null --num-steps 3 --output-dir runs/predicted",
                run: run(
                    "runs/predicted",
                    Expected::Study { sizes: &["tiny", "small", "medium", "large", "very_large"], versions: &["v1"] },
                ),
                figures: &[&[
                    kept("medium: memory", STUDY, "runs.2.planned_memory_mb", Mebibytes),
                    kept("large: memory", STUDY, "runs.3.planned_memory_mb", Mebibytes),
                    kept("very_large: memory", STUDY, "runs.4.planned_memory_mb", Mebibytes),
                    kept(
                        "very_large: memory over the parameters' own bytes",
                        STUDY,
                        "runs.4.memory_over_parameters",
                        Times,
                    ),
                ]],
            },
            Step {
                title: "On a GPU: a size that fills it",
                command: "headroom study small medium --versions v1 --num-steps 10 --enable-profilers \
                    --output-dir runs/medium",
                run: gpu_run("runs/medium", Expected::Study { sizes: &["small", "medium"], versions: &["v1"] }),
                figures: &[SIZES_OF_A_GPU],
            },
        ],
        agreements: &[Agreement { first: "runs/plain", second: "runs/baseline", about: "recording changes no loss" }],
    },
    Part {
        number: 2,
        title: "Memory",
        steps: &[
            Step {
                title: "One step in detail",
                command: "headroom profile --size tiny --passes v1 --num-steps 12 --output-dir runs/memory",
                run: run("runs/memory", tiny("v1", 12, Writes::Profile)),
                figures: &[&[
                    kept("peak memory", MEMORY, "peak_memory_mb", Mebibytes),
                    kept("phase of the peak", MEMORY, "peak_phase", Words),
                    kept("operator at the peak", MEMORY, "peak_operator", Words),
                    kept("average memory", MEMORY, "avg_memory_mb", Mebibytes),
                    kept("peak over average", MEMORY, "peak_to_average", Times),
                    kept("parameters", MEMORY, "by_category.parameters", Mebibytes),
                    kept("optimizer state", MEMORY, "by_category.optimizer_state", Mebibytes),
                    kept("activations", MEMORY, "by_category.activations", Mebibytes),
                ]],
            },
            Step {
                title: "Sweep batch and sequence under Version 1",
                command: "headroom scale --size tiny --passes v1 --batch 4,8,16 --seq 64,128,256,512 \
                    --num-steps 6 --output-dir runs/scaling",
                run: run(
                    "runs/scaling",
                    Expected::Sweep { size: "tiny", passes: "v1", batches: BATCHES, sequences: SEQUENCES },
                ),
                figures: &[
                    BATCH_POINTS,
                    SEQUENCE_POINTS,
                    &[
                        kept("exponent over the batch", SCALING, "batch_scaling.exponent", Number),
                        kept("growth over the batch", SCALING, "batch_scaling.class", Words),
                        kept("exponent over the sequence", SCALING, "sequence_scaling.exponent", Number),
                        kept("growth over the sequence", SCALING, "sequence_scaling.class", Words),
                        kept("largest batch that fits", SCALING, "limits.largest_batch", Count),
                        kept("longest sequence that fits", SCALING, "limits.longest_sequence", Count),
                        kept("saving 1", SCALING, "optimizations.0.name", Words),
                        kept("saving 1: memory", SCALING, "optimizations.0.saved_mb", Mebibytes),
                        kept("saving 1: time per step", SCALING, "optimizations.0.step_ratio", Times),
                        kept("saving 2", SCALING, "optimizations.1.name", Words),
                        kept("saving 2: memory", SCALING, "optimizations.1.saved_mb", Mebibytes),
                        kept("saving 2: time per step", SCALING, "optimizations.1.step_ratio", Times),
                        kept("saving 3", SCALING, "optimizations.2.name", Words),
                        kept("saving 3: memory", SCALING, "optimizations.2.saved_mb", Mebibytes),
                        kept("saving 3: time per step", SCALING, "optimizations.2.step_ratio", Times),
                        kept("saving 4", SCALING, "optimizations.3.name", Words),
                        kept("saving 4: memory", SCALING, "optimizations.3.saved_mb", Mebibytes),
                        kept("saving 4: time per step", SCALING, "optimizations.3.step_ratio", Times),
                    ],
                ],
            },
            Step {
                title: "The same plan under Version 2",
                command: "headroom scale --size tiny --passes v2 --batch 4,8,16 --seq 64,128,256,512 \
                    --plan-only --output-dir runs/scaling-v2",
                run: run(
                    "runs/scaling-v2",
                    Expected::Sweep { size: "tiny", passes: "v2", batches: BATCHES, sequences: SEQUENCES },
                ),
                figures: &[&[
                    kept("exponent over the sequence", SCALING, "sequence_scaling.exponent", Number),
                    kept("longest sequence that fits", SCALING, "limits.longest_sequence", Count),
                ]],
            },
            Step {
                title: "Bandwidth and intensity",
                command: "headroom train --size tiny --passes v1 --num-steps 15 --computational-intensity \
                    --output-dir runs/bandwidth",
                run: run("runs/bandwidth", tiny("v1", 15, Writes::Intensity)),
                figures: &[&[
                    kept("FLOPs per byte", INTENSITY, "arithmetic_intensity_flops_per_byte", Number),
                    kept("bandwidth used, GB/s", INTENSITY, "memory_bandwidth_used_gb_per_sec", Number),
                    kept("share of the bandwidth", INTENSITY, "memory_bandwidth_utilization_percent", Percent),
                    kept("bound by", INTENSITY, "memory_bound_vs_compute_bound", Words),
                ]],
            },
            Step {
                title: "Less memory than the run wants",
                command: "headroom train --size tiny --passes v1 --num-steps 10 --memory-limit 95MiB \
                    --output-dir runs/limited",
                run: cpu_run(
                    "runs/limited",
                    Expected::Training(Training {
                        size: "tiny",
                        passes: "v1",
                        steps: 10,
                        writes: Writes::Nothing,
                        within_mb: Some(95.0),
                    }),
                ),
                figures: &[&[
                    kept("memory reserved", PERFORMANCE, "performance_summary.peak_memory_mb", Mebibytes),
                    kept("median time per step", PERFORMANCE, "statistics.median", Seconds),
                    printed("layers recomputed"),
                ]],
            },
        ],
        agreements: &[],
    },
    Part {
        number: 3,
        title: "Bottlenecks",
        steps: &[
            Step {
                title: "Profile 30 steps",
                command: "headroom profile --size tiny --passes v1 --num-steps 30 --output-dir runs/bottlenecks",
                run: run("runs/bottlenecks", tiny("v1", 30, Writes::Profile)),
                figures: &[
                    TOP_TEN,
                    BOTTLENECKS,
                    &[
                        kept("matrix products, share of the step", OPERATORS, "patterns.gemm_percent", Percent),
                        kept("attention", OPERATORS, "patterns.attention_percent", Percent),
                        kept("feed-forward", OPERATORS, "patterns.ffn_percent", Percent),
                        kept("norms", OPERATORS, "patterns.norm_percent", Percent),
                        kept("optimizer", OPERATORS, "patterns.optimizer_percent", Percent),
                        kept("launch overhead", OPERATORS, "patterns.launch_overhead_percent", Percent),
                        kept("kernels per step", OPERATORS, "patterns.kernels_per_step", Count),
                        kept("device idle", OPERATORS, "patterns.idle_percent", Percent),
                        kept("MFU", FLOPS, "efficiency_metrics.mfu_percent", Percent),
                        kept("FLOPs per byte", INTENSITY, "arithmetic_intensity_flops_per_byte", Number),
                        kept("bound by", INTENSITY, "memory_bound_vs_compute_bound", Words),
                        kept("FLOP/s", FLOPS, "performance_metrics.flops_per_sec", Number),
                        kept("FLOPs per parameter", FLOPS, "flops_analysis.flops_per_parameter", Number),
                        kept("bandwidth used, GB/s", INTENSITY, "memory_bandwidth_used_gb_per_sec", Number),
                        printed("cost of a launch, as `headroom device` prints it"),
                        printed("kernels per step times that cost: launch overhead predicted"),
                    ],
                ],
            },
            Step {
                title: "Read the trace",
                command: "headroom analyze runs/bottlenecks",
                run: None,
                figures: &[&[
                    printed("first finding, and its share of the step"),
                    printed("second finding"),
                    printed("third finding"),
                ]],
            },
            Step {
                title: "Analyse the folder again into a report",
                command: "headroom profile --analyze-existing runs/bottlenecks --generate-report \
                    --output-dir runs/detailed",
                run: run("runs/detailed", Expected::Report),
                figures: &[&[printed("files written"), printed("number of findings")]],
            },
        ],
        agreements: &[],
    },
    Part {
        number: 4,
        title: "Optimised versions",
        steps: &[
            Step {
                title: "Every pass: predicted, measured, verified",
                command: "headroom optimize --size tiny --output-dir runs/optimize",
                run: run("runs/optimize", Expected::Ladder { size: "tiny" }),
                figures: &[&[
                    kept("kernels per step of Version 1", VALIDATION, "targets.kernels_before", Count),
                    kept("kernels per step of the kept list", VALIDATION, "targets.kernels_after", Count),
                    kept("speed-up of Version 2", VALIDATION, "versions.0.measured_speedup", Times),
                    kept("speed-up of all passes", VALIDATION, "versions.1.measured_speedup", Times),
                    kept("samples per second before", VALIDATION, "targets.samples_per_sec_before", Rate),
                    kept("samples per second after", VALIDATION, "targets.samples_per_sec_after", Rate),
                    kept("memory before", VALIDATION, "targets.memory_mb_before", Mebibytes),
                    kept("memory after", VALIDATION, "targets.memory_mb_after", Mebibytes),
                    kept("first pass of the ladder", VALIDATION, "passes.0.name", Words),
                    kept("predicted speed-up of it", VALIDATION, "passes.0.predicted_speedup", Times),
                    kept("measured speed-up of it", VALIDATION, "passes.0.measured_speedup", Times),
                ]],
            },
            Step {
                title: "Profile Version 2",
                command: "headroom profile --size tiny --passes v2 --num-steps 20 --output-dir runs/version2 \
                    --name version2",
                run: run("runs/version2", tiny("v2", 20, Writes::Profile)),
                figures: &[PROFILE],
            },
            Step {
                title: "Compare with the baseline",
                command: "headroom runs compare baseline version2",
                run: None,
                figures: &[&[
                    printed("change of the time per step"),
                    printed("its 95% interval"),
                    answered("does the interval exclude 0?"),
                ]],
            },
            Step {
                title: "Versions in turn",
                command: "headroom study tiny \
                    --versions v1,v2,v2+fuse-swiglu+fuse-norm+fuse-rope+fuse-loss,all --num-steps 40 --output-dir runs/versions",
                run: run("runs/versions", Expected::Study { sizes: &["tiny"], versions: &["v1", "v2", "all"] }),
                figures: &[VERSIONS, &[kept("Version 2 against Version 1", STUDY, "comparisons.0.verdict", Words)]],
            },
            Step {
                title: "On a GPU: all kernels fused, launched one by one",
                command: "headroom profile --size tiny --passes all,-graph-replay --num-steps 60 \
                    --output-dir runs/fused --name fused",
                run: gpu_run("runs/fused", tiny("all,-graph-replay", 60, Writes::Profile)),
                figures: &[PROFILE],
            },
            Step {
                title: "On a GPU: the step captured and launched at once",
                command: "headroom profile --size tiny --passes all --num-steps 60 --output-dir runs/captured \
                    --name captured",
                run: gpu_run("runs/captured", tiny("all", 60, Writes::Profile)),
                figures: &[PROFILE],
            },
        ],
        agreements: &[Agreement {
            first: "runs/baseline",
            second: "runs/version2",
            about: "Version 2 is the same model",
        }],
    },
    Part {
        number: 5,
        title: "K-1",
        steps: &[
            Step {
                title: "Rules of updating on a LLaMA",
                command: "headroom k1 --output-dir runs/k1",
                run: cpu_run("runs/k1", Expected::Rules),
                figures: &[&[
                    kept("dense updates: loss", K1, "arms.0.loss.mean", Number),
                    kept("dense updates: forgetting", K1, "arms.0.forgetting.mean", Number),
                    kept("largest norms: loss", K1, "arms.1.loss.mean", Number),
                    kept("largest norms: forgetting", K1, "arms.1.forgetting.mean", Number),
                    kept("largest norms: share updated", K1, "arms.1.updated_share.mean", Number),
                ]],
            },
            Step {
                title: "The same questions on K-1's own tree",
                command: "headroom k1 --model tree --seeds 3 --steps 50 --output-dir runs/tree",
                run: cpu_run("runs/tree", Expected::Tree),
                figures: &[&[
                    kept("the hierarchy", K1_TREE, "answers.0", Words),
                    kept("credit by norm", K1_TREE, "answers.1", Words),
                    kept("standing still", K1_TREE, "answers.2", Words),
                ]],
            },
            Step {
                title: "The habits that its report blames, timed",
                command: "headroom k1 --model tree --speed --time 30 --output-dir runs/tree-speed",
                run: run("runs/tree-speed", Expected::TreeSpeed),
                figures: &[&[
                    kept("loss read every 10 steps", K1_SPEED, "rows.0.speedup", Times),
                    kept("norms ranked on the device", K1_SPEED, "rows.1.speedup", Times),
                    kept("masks kept", K1_SPEED, "rows.2.speedup", Times),
                    kept("32 sequences evaluated at once", K1_SPEED, "rows.3.speedup", Times),
                ]],
            },
        ],
        agreements: &[],
    },
    Part {
        number: 6,
        title: "PyTorch",
        steps: &[
            Step {
                title: "Read the script",
                command: "headroom lint slow_train.py",
                run: None,
                figures: &[&[printed("findings"), answered("the one that you expect to cost most")]],
            },
            Step {
                title: "Record it as it is",
                command: "headroom record --stop --steps 8 --output-dir runs/torch-before -- python slow_train.py",
                run: run("runs/torch-before", Expected::Recording),
                figures: &[
                    RECORDED,
                    &[
                        analyzed("first finding", "findings.0.name", Words),
                        analyzed("its share of the step", "findings.0.share_of_step", Share),
                    ],
                ],
            },
            Step {
                title: "Try remedies from outside",
                command: "headroom optimize --time-limit 2m --output-dir runs/torch-optimize -- python slow_train.py",
                run: run("runs/torch-optimize", Expected::Remedies),
                figures: &[&[
                    kept("time per step before", VALIDATION, "baseline_step_seconds", Seconds),
                    kept("speed-up of what is kept", VALIDATION, "speedup", Times),
                    kept("95% interval from", VALIDATION, "ci95_low", Times),
                    kept("to", VALIDATION, "ci95_high", Times),
                    kept("first remedy kept", VALIDATION, "kept.0", Words),
                ]],
            },
            Step {
                title: "Record the mended script",
                command: "headroom record --stop --steps 8 --output-dir runs/torch-after -- python slow_train.py",
                run: run("runs/torch-after", Expected::Recording),
                figures: &[RECORDED],
            },
            Step {
                title: "Record the script that was mended by hand",
                command: "headroom record --stop --steps 8 --output-dir runs/torch-fixed -- python fixed_train.py",
                run: run("runs/torch-fixed", Expected::Recording),
                figures: &[RECORDED],
            },
            Step {
                title: "Prove it",
                command: "headroom compare runs/torch-before runs/torch-fixed --fail-if \"step>5%\"",
                run: None,
                figures: &[&[
                    compared("change of the time per step", MENDED_BY_HAND, "step.relative", Change),
                    compared("95% interval from", MENDED_BY_HAND, "step.interval.0", Change),
                    compared("to", MENDED_BY_HAND, "step.interval.1", Change),
                    compared("findings gone", MENDED_BY_HAND, "findings_gone", Entries),
                ]],
            },
        ],
        agreements: &[],
    },
];
