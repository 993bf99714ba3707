//! Triggers of the trace rules: from where on each reports. The first of a rule is the one that its code alone sets.

use super::table;

table! {
    TRIGGERS:
    tr101 {
        LEAST_SHARE: f64 = 0.0005, Share, "The wait of the device; steps of one run vary by more than less.";
        READS_OF_A_LOOP: f64 = 10.0, Number, "Reads per step; a step that is not a loop reads only a few values.";
        READS_SHARE: f64 = 0.01, Share, "A loop of reads on the host alone.";
        ONE_READ_SHARE: f64 = 0.1, Share, "A few reads on the host alone.";
    }
    tr102 {
        IDLE_SHARE: f64 = 0.15, Share, "Idle time of the device.";
    }
    tr103 {
        LAUNCH_BOUND_SHARE: f64 = 0.1, Share, "Time in which the device waits for the next launch.";
        NOTHING_AHEAD_SHARE: f64 = 0.5, Share, "Of the launches: those that find nothing queued ahead.";
        SHORT_WORK_SHARE: f64 = 0.5, Share, "Of the launches: those whose work is shorter than the launch.";
    }
    tr104 {
        DATA_LOADING_SHARE: f64 = 0.05, Share, "Time in which the training thread waits for its batch.";
        EXPOSED_SHARE: f64 = 0.01, Share, "Time in the loader in which nothing else runs.";
    }
    tr105 {
        COPIES_SHARE: f64 = 0.05, Share, "Copies between host and device.";
        PAGEABLE_SHARE: f64 = 0.0005, Share, "Copies from or to pageable memory, whose remedy is one word.";
    }
    tr106 {
        TENSOR_CORE_SHARE: f64 = 0.03, Share, "GEMMs that could use tensor cores but do not.";
    }
    tr107 {
        ATTENTION_SHARE: f64 = 0.03, Share, "Attention with its scores in memory.";
    }
    tr108 {
        SMALL_KERNELS_SHARE: f64 = 0.03, Share, "Runs of element-wise kernels, without the longest of each.";
        LOOPS_SHARE: f64 = 0.1, Share, "Loops of short kernels on the device.";
        KERNELS_SHARE: f64 = 0.05, Share, "Of the kernels: those in runs; fewer are not worth fusing.";
    }
    tr109 {
        OPTIMIZER_KERNELS_PER_STEP: f64 = 100.0, Number, "Element-wise kernels of the optimizer per step.";
        LOOPS_SHARE: f64 = 0.02, Share, "A loop over few small parameters is not worth rewriting.";
        GROUPS_PER_STEP: f64 = 50.0, Number, "Fused updates per step; fewer are groups with different settings.";
        PASSES_SHARE: f64 = 0.03, Share, "Passes through memory that one fused update, or a sparse one, does not need.";
    }
    tr110 {
        MEMORY_SHARE_OF_DEVICE: f64 = 0.9, Share, "Peak memory, of the device's.";
    }
    tr111 {
        CALLS_PER_STEP: f64 = 2.0, Number, "Calls of the device's allocator per step.";
    }
    tr112 {
        GROWTH_A_STEP: f64 = 0.005, Share, "Growth of live memory from step to step.";
    }
    tr113 {
        ROOF_SHARE: f64 = 0.03, Share, "Time of an operator above its roof.";
        ROOF_PERCENT: f64 = 20.0, Percent, "Of its roof: up to here an operator is reported.";
        NORM_PERCENT: f64 = 40.0, Percent, "Of the memory bandwidth: norms that reach more are as good as most.";
    }
    tr114 {
        LEAST_SHARE: f64 = 0.0005, Share, "A constant rebuilt in every step; steps of one run vary by more than less.";
    }
    tr115 {
        EXPOSED_SHARE: f64 = 0.03, Share, "Collectives not hidden behind compute.";
        OVERLAP_SHARE: f64 = 0.7, Share, "Of the collectives: if more is hidden, nothing is reported.";
    }
    tr116 {
        SKEW_SHARE: f64 = 0.05, Share, "Time that a rank keeps the others waiting.";
    }
    tr117 {
        OCCUPANCY_PERCENT: f64 = 25.0, Percent, "Occupancy below which a batch counts as small.";
    }
    tr118 {
        STEP_SPREAD: f64 = 1.5, Number, "A step's length divided by the median.";
    }
    tr119 {
        ONE_OPERATOR_SHARE: f64 = 0.5, Share, "One operator on the host while the device is idle.";
        ON_HOST_SHARE: f64 = 0.3, Share, "One operator of a run on the host alone dominates it.";
        TOGETHER_SHARE: f64 = 0.1, Share, "Several operators that are long and launch nothing, while the device is idle.";
    }
    tr120 {
        PROFILER_SHARE: f64 = 0.1, Share, "The profiler's own time.";
    }
    tr121 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr122 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr123 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr124 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr125 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr126 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr127 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr128 { SAVING_SHARE: f64 = 0.01, Share, "The pass's largest possible saving."; }
    tr129 {
        COLD_SHARE: f64 = 0.1, Share, "One-time set-up in the window, with the device idle.";
    }
    tr130 {
        STALLED_SHARE: f64 = 0.05, Share, "Time in which work is queued but the device is idle.";
    }
    tr131 {
        DEVICE_COPIES_SHARE: f64 = 0.03, Share, "Copies on the device with nothing running beside them.";
    }
    tr132 {
        NEEDLESS_SHARE: f64 = 0.03, Share, "Work computed again.";
        MEMORY_SHARE: f64 = 0.5, Share, "Of the device's memory: a run that uses more needs what checkpointing saves.";
    }
    tr133 { NEEDLESS_SHARE: f64 = 0.03, Share, "Work computed again; it is found by likeness, which may err."; }
    tr134 { NEEDLESS_SHARE: f64 = 0.03, Share, "Gradients that nothing reads; found by likeness, which may err."; }
    tr135 { NEEDLESS_SHARE: f64 = 0.03, Share, "A pass computed again; it is found by likeness, which may err."; }
    tr136 { NEEDLESS_SHARE: f64 = 0.03, Share, "Metrics of every step."; }
    tr137 { NEEDLESS_SHARE: f64 = 0.03, Share, "Scores that a mask discards."; }
}
