//! Numbers of measures and models: what counts as what, and what remedies leave.

use super::table;

table! {
    MODELS:
    alignment {
        LEAST_GROWTH: f64 = 0.001, Share,
            "Growth below this share of the step is not listed.";
    }
    analysis {
        DEVICE_SETS_PACE: f64 = 0.9, Share,
            "If the device is busy for more of the step than this, the host time spent on recording does not slow \
             the step.";
    }
    anomaly {
        FEWEST_CHECKS: f64 = 8.0, Number,
            "Checks per step; anomaly detection has one for each node of the backward pass, others a few.";
        OWN_NANOS: i64 = 15_000, Nanos,
            "An operator's own work takes no longer than this; the rest is spent on the stack.";
    }
    attention_by_kernels {
        MOST_BETWEEN: usize = 6, Number,
            "Kernels between a softmax and a GEMM: scaling, masks, dropout, conversions, and the accumulation of \
             their gradients.";
        MOST_BETWEEN_PRODUCTS: usize = 2, Number,
            "Kernels between the two GEMMs of a backward pass.";
        FEWEST_PER_STEP: f64 = 2.0, Number,
            "With fewer per step, they are not layers: a classifier has one.";
        LEAST_OF_A_PRODUCT: f64 = 0.2, Share,
            "A softmax over few classes takes a smaller share of the time of the GEMM that reads it.";
    }
    attention_masked {
        LEFT: f64 = 0.45, Share,
            "Share of a kernel's time that remains if blocks beyond the diagonal are skipped and no mask is read: \
             half, and less for not reading it.";
        LEFT_OF_ANY_MASK: f64 = 0.28, Share,
            "The kernel that takes any mask is half as fast as the one that takes none.";
        LEFT_AT_BEST: f64 = 0.2, Share,
            "The best case for either.";
    }
    below_roof {
        CONVERSIONS_LEFT: f64 = 0.25, Share,
            "Share of layout conversions that remain with channels last: of weights, and of the first and last \
             tensors.";
        MOVING_SHARE: f64 = 0.35, Share,
            "Most operators that only move bytes reach more than this; gathers and scatters about as much.";
    }
    breakdown {
        LONG_GAP_NANOS: i64 = 2_000_000, Nanos,
            "In a longer gap the host does something other than launching: a chain of operators launches work more \
             often.";
    }
    by_hand {
        LEAST_BYTES: u64 = 4096, Bytes,
            "Smaller copies are single values, not a batch.";
        LEAST_PREPARED_SHARE: f64 = 0.02, Share,
            "A shorter time is just what it takes to reach the copy.";
        LEAST_NANOS: i64 = 1_000_000, Nanos,
            "The same as a time.";
        MOST_IN_OPERATORS: f64 = 0.5, Share,
            "If operators take more of the time, other rules report them: conversions on the host, tensors created \
             there.";
    }
    checks {
        MOST: usize = 12, Number,
            "Number of operators examined before a read-back.";
    }
    cold {
        LEAST_NANOS: i64 = 1_000_000, Nanos,
            "Shorter calls are ignored.";
        COLD_SHARE: f64 = 0.10, Share,
            "From this share on, a step counts as a cold start.";
        TIMES_LATER: i64 = 10, Number,
            "The first operator of a library that takes so many times as long as the longest later one sets it up: \
             2.1 ms against 0.02 ms of a GEMM on an A100.";
        FEWEST_LATER: usize = 3, Number,
            "With fewer later ones, the first may just be larger.";
    }
    compare {
        STEPS_OF_A_MEDIAN: usize = 6, Number,
            "With at least this many values, the smallest and the largest bound the median with 95% confidence.";
    }
    compiled {
        MOSTLY: f64 = 0.3, Share,
            "From this share of kernels on, a step counts as compiled.";
    }
    converted {
        LEAST_BYTES: u64 = 1 << 20, Bytes,
            "Smaller tensors are ignored.";
        LEAST_MADE_BYTES: u64 = 1 << 10, Bytes,
            "Smaller copies are single values, not tensors that the host makes.";
    }
    cost {
        LEAST_LEFT_BY_A_BOUND: f64 = 0.05, Share,
            "Of the step. A bound that leaves less says nothing: no training step shrinks to a twentieth by one \
             remedy.";
        LEAST_COST: f64 = 0.0005, Share,
            "Smaller savings are not worth a line of the roadmap: steps of one run vary by more.";
        WORTH_A_REASON: f64 = 0.01, Share,
            "Of the step. A finding of at least this share that costs less than half of it says why.";
        FLASH_SHARE: f64 = 0.40, Share,
            "Share of the tensor cores' rate that fused attention reaches over both passes: 43% follows from step \
             times on an H200.";
        FLASH_OF_PRODUCT: f64 = 0.6, Share,
            "Share of the time of GEMMs that write or read scores which fused attention takes, if FLOPs are \
             unknown. It is as fast for heads of 128, and nearly twice as fast for heads of 64, where moving scores \
             bounds the GEMMs.";
        LEAST_OF_PRODUCT: f64 = 0.2, Share,
            "The share that fused attention takes at best.";
        STREAM_SHARE: f64 = 0.8, Share,
            "Share of the memory bandwidth that one kernel for all parameters, or a copy on the device, reaches.";
        ROOF_SHARE: f64 = 0.7, Share,
            "Share of its roof that a tuned operator reaches.";
        PASS_SHARE: f64 = 0.62, Share,
            "Share of the time above the roof that a pass of ours saves: passes bound by 49.5% of a step gained \
             1.44×, which is 30.6%.";
        PINNED_SHARE: f64 = 0.85, Share,
            "Share of the link's rate that copies from pinned memory reach.";
        WORKERS: usize = 8, Number,
            "Worker processes that share the loader's work, where the trace does not say how many cores the machine \
             has; also the most that are assumed where it does.";
        HANDED_OVER: i64 = 32, Number,
            "The share of a loader's work spent on taking batches over from workers is one in this many.";
    }
    cpu_bound_op {
        SHORTEST_NANOS: i64 = 500_000, Nanos,
            "Shorter operators without launches compute sizes, views and numbers.";
    }
    critical_path {
        BACK_TO_BACK_NANOS: i64 = 3_000, Nanos,
            "Work without a known launch that starts this soon after the work before it was waiting for that work.";
    }
    differentiated_again {
        FEWEST_NODES: f64 = 8.0, Number,
            "Fewer nodes are just a sum that is differentiated separately.";
        LEAST_AGAIN_SHARE: f64 = 0.1, Share,
            "Least share of the numbered nodes.";
    }
    findings {
        GROWN: f64 = 1.02, Number,
            "Growth of a finding's time by less is within what two recordings differ by.";
        LEAST_GROWTH: f64 = 0.005, Share,
            "A finding that both traces have is listed as grown from this share of the step on.";
    }
    held_between {
        LEAST_GROWTH: u64 = 8, Number,
            "The result has at least this many times the elements of each input.";
    }
    host_copies {
        WORTH_A_WORD: f64 = 0.01, Share,
            "The host's work is mentioned from this share on.";
    }
    host_sync {
        SHARE_IN_THE_SHADOW: f64 = 0.1, Share,
            "Share of the previous wait's cost below which a wait counts as its follower.";
    }
    join {
        IN_A_ROW: usize = 3, Number,
            "One equal name may be a coincidence; so many in a row are not.";
        LOOK_AHEAD: usize = 64, Number,
            "How far to look ahead for the next common event where the traces differ.";
    }
    launch_bound {
        WAITS_OF_A_LOOP: f64 = 10.0, Number,
            "Waits per step; a step that is not a loop reads only a few values.";
        NOT_AHEAD: f64 = 1.0, Number,
            "A host that usually has only the running work queued does not stay ahead of the device.";
    }
    loader {
        NOISE_OF_LOADING: f64 = 0.35, Share,
            "The share by which a loader's time varies: 31 ms recorded were 44 ms in steps with nothing attached.";
        COST_SPREAD: f64 = 0.35, Share,
            "Per-event costs vary by this share of the usual ones.";
        LEAST_LOADING_SHARE: f64 = 0.1, Share,
            "A loader that takes less than this share of the step explains nothing.";
        LEAST_DIFFERENCE: f64 = 0.01, Share,
            "Differences below this share of the step are ignored.";
        LEAST_LEFT: f64 = 0.3, Share,
            "At least this share of a loader's recorded time remains.";
    }
    masked_attention {
        SHORTEST_SEQUENCE: u64 = 256, Number,
            "Shorter sequences gain nothing from skipped blocks.";
    }
    matching {
        TOLERANCE_NANOS: i64 = 300_000, Nanos,
            "Ranks end a collective within this time of each other.";
        FEWEST: usize = 4, Number,
            "Fewer collectives do not tell the offset of two clocks.";
        MOST_OF_A_KIND: usize = 200, Number,
            "Of one kind, at most so many collectives are compared with each other, which takes time by its square.";
    }
    metrics {
        LEAST_STEPS: f64 = 0.9, Share,
            "Least share of steps with metrics; with fewer, they are computed at an interval.";
    }
    norms {
        SHORTEST_NANOS: f64 = 3_000.0, Nanos,
            "A kernel takes at least this long, whatever its size.";
        REACHED: f64 = 0.7, Share,
            "Share of the memory bandwidth that a good kernel reaches.";
    }
    on_host {
        SCALAR_BYTES: u64 = 64, Bytes,
            "Single values are not larger than this.";
        SHORTEST_NANOS: i64 = 100_000, Nanos,
            "A shorter pause is just what the next launch takes.";
        SOON_NANOS: i64 = 1_000_000, Nanos,
            "A stall that begins later than this after a copy has another cause.";
    }
    optimizer_per_parameter {
        SPARSE_COST: f64 = 2.0, Number,
            "Cost of a sparse gradient per used row, relative to a dense one: its rows are sorted and summed first.";
    }
    overhead {
        MOST_ABOVE_FIT: f64 = 1.3, Number,
            "How far the cost of recording may exceed the fit.";
        SECONDS_PER_LAUNCH: f64 = 10e-6, Seconds,
            "Least host time of a launch without a profiler, including the operator around it.";
    }
    parameters {
        FEWEST: usize = 20, Number,
            "An operator on fewer consecutive tensors is not a loop over a model.";
        LONGEST_PAUSE_NANOS: i64 = 1_000_000, Nanos,
            "If the host does something else for longer between two tensors, it is not just looping over them.";
        ADAM_BYTES: f64 = 28.0, Bytes,
            "Bytes that AdamW moves per parameter in single precision: reads weight, gradient and two moments, \
             writes all but the gradient.";
        MOMENTUM_BYTES: f64 = 20.0, Bytes,
            "Bytes that an update with one moment moves per parameter.";
    }
    passes {
        HIGH_IMPACT: f64 = 0.10, Share,
            "Share of the step below which impact is low.";
    }
    peaks {
        PRODUCT_SHARE: f64 = 0.65, Share,
            "Share of the tensor cores' rate that large GEMMs reach: 66% in TF32 follows from step times on an \
             H200.";
    }
    points {
        LONGEST_DELAY_NANOS: i64 = 10_000, Nanos,
            "Longest delay from a launch to the start of its work on an idle stream; any more was spent in a queue.";
        LONGEST_GAP_NANOS: i64 = 10_000, Nanos,
            "Longest gap between one piece of work and the next one queued behind it.";
        CLOCK_NANOS: i64 = 1_000, Nanos,
            "The clocks of host and device differ by up to this much.";
    }
    profiler_cost {
        SHAPES_MICROS: f64 = 2.0, Micros,
            "Cost of shapes, FLOPs and memory per operator (docs/benchmarks/true-step.md).";
        PYTHON_MICROS: f64 = 1.5, Micros,
            "Cost of stacks per Python function (docs/benchmarks/true-step.md).";
        LAUNCH_MICROS_THEN: f64 = 5.2, Micros,
            "The quickest tenth of recorded launches where the costs were measured (docs/benchmarks/true-step.md).";
        QUICK: f64 = 0.9, Share,
            "With launches up to a quarter quicker than that, costs were hardly lower.";
        QUICK_IN_PART: f64 = 1.23, Number,
            "Up to there, costs were higher than in proportion to the launches by this factor.";
        WITHOUT_A_DEVICE: f64 = 0.6, Share,
            "On a host without a device, no driver records anything.";
        LEAST_LAUNCHES: usize = 20, Number,
            "Fewer launches do not tell how quick the host is.";
        SHARED_SHAPES_MICROS: f64 = 1.0, Micros,
            "Cost of shapes per operator where a known total is divided: from the first eight scripts.";
        SHARED_PYTHON_MICROS: f64 = 2.5, Micros,
            "The same of stacks per Python function.";
        SHARED_LAUNCH_MICROS: f64 = 4.5, Micros,
            "The launches of those eight scripts.";
        SHARED_FOLLOWS: f64 = 2.0 / 3.0, Number,
            "The exponent of the launch speed that these costs follow.";
        LEAST: f64 = 0.55, Share,
            "The lowest cost seen, as a multiple of the middle.";
        LEAST_OF_PYTHON: f64 = 0.1, Share,
            "The lowest cost seen of Python functions, which vary most, as a multiple of the middle.";
        MOST: f64 = 1.7, Number,
            "The highest cost seen, as a multiple of the middle.";
        MOST_OF_PYTHON: f64 = 3.3, Number,
            "The highest cost seen of Python functions, as a multiple of the middle.";
        MOST_STAGING: f64 = 0.3, Share,
            "One script's copies of 154 MB took 23% less time without a profiler.";
        MOST_DEBT_NANOS: i64 = 200_000, Nanos,
            "More than this is not carried over: the thread was waiting for another.";
    }
    queue {
        FULL_QUEUE: u32 = 500, Number,
            "Streams hold about a thousand launches; a shorter queue is not full.";
        HELD_BACK_NANOS: i64 = 50_000, Nanos,
            "A launch that takes longer than this was blocked.";
    }
    ranks {
        FEWEST_MEETINGS: usize = 4, Number,
            "With fewer collectives in common, the slow rank cannot be identified.";
    }
    read_loops {
        FEWEST_READS: usize = 16, Number,
            "Fewer read-backs in one call of a function do not count as a loop.";
        FEWEST_KERNELS: f64 = 4.0, Number,
            "With fewer kernels per value, reading it is the cost, and host-sync reports it.";
        MOST_BUSY: f64 = 0.5, Share,
            "The largest share of the loop's time in which the device may be busy.";
    }
    recomputed {
        FEWEST: usize = 2, Number,
            "A graph node that calls fewer of them just has an unusual gradient.";
    }
    repeated_forward {
        FEWEST_LAYERS: usize = 4, Number,
            "A pass through fewer layers is part of something else.";
        MOST_PASSES: usize = 2, Number,
            "A step with more layers than this multiple of the trained ones does not process a batch twice: it \
             plays episodes, or generates text.";
        LONGEST_PAUSE_NANOS: i64 = 20_000_000, Nanos,
            "After a longer pause between two layers, another pass begins.";
    }
    repeats {
        LONGEST_ROUND: usize = 24, Number,
            "A layer of a model has more kernels than one iteration of a loop within it.";
        FEWEST_ROUNDS: usize = 6, Number,
            "Fewer iterations may be the parts of one layer, such as its projections.";
        FEWEST_LOOPS: f64 = 3.0, Number,
            "The same loop occurs at least this often per step, in as many layers.";
        LONGEST_NANOS: i64 = 60_000, Nanos,
            "Longer kernels fill the device by themselves.";
        LONGEST_PAUSE_NANOS: i64 = 20_000, Nanos,
            "Longest gap between kernels of one stream that count as consecutive.";
    }
    replayed {
        APPLYING: f64 = 2.0, Number,
            "Passes through memory of the kernel that applies the statistics.";
        STATISTICS: f64 = 1.0, Number,
            "Passes through memory for the sums over a batch.";
        BACKWARD: f64 = 5.0, Number,
            "Passes through memory of the gradient.";
        FEWEST: f64 = 0.4, Share,
            "The least share of the memory bandwidth that the applying kernel itself may reach.";
    }
    retiming {
        DEARER: f64 = 1.35, Number,
            "Higher costs than usual are tried up to the highest seen, where the true time shows that the device hides them.";
        MOST_IN_FIT: f64 = 4.0, Number,
            "Largest multiple of the usual cost that a fit may reach.";
        MISS: f64 = 0.03, Share,
            "A replay that misses the true time by more than this gets a note.";
        CLOSE_ENOUGH: f64 = 0.001, Share,
            "Accuracy at which the fit stops.";
        LITTLE: f64 = 0.005, Share,
            "Share by which a replay may miss the true time when a higher recording cost is assumed for the host.";
        LEAST_JOINED: f64 = 0.75, Share,
            "Light and full traces that have less in common than this are not joined.";
        NOISE: f64 = 0.08, Share,
            "Steps of one run vary by this much, whatever is attached.";
        MANY_WAITS: f64 = 10.0, Number,
            "The per-event cost model fits recordings with up to 6 host waits per step; it failed on those with 25 \
             and 288.";
        STEPS_TO_ESTIMATE_BY: usize = 8, Number,
            "Steps are alike: so many are enough to tell the cost of recording, in a fraction of the time.";
    }
    rounds {
        LONGEST_ROUND: usize = 48, Number,
            "Kernels of an iteration; longer ones are layers or steps.";
        FEWEST_ROUNDS: usize = 160, Number,
            "Without known modules: there are fewer layers than this.";
        FEWEST_ROUNDS_OF_ONE_PART: usize = 12, Number,
            "If modules are known and all iterations use the same ones.";
        COMPARED_ROUNDS: usize = 3, Number,
            "Iterations whose modules are compared.";
        LONGEST_NANOS: i64 = 200_000, Nanos,
            "Longer kernels fill the device by themselves.";
        BATCHED_SHARE: f64 = 0.3, Share,
            "Share of its roof that a batched GEMM of many small ones reaches.";
    }
    sequences {
        SHORTEST: usize = 2, Number,
            "Kernels of a listed sequence, at least.";
        LONGEST: usize = 6, Number,
            "Kernels of a listed sequence, at most.";
        FEWEST_TIMES: usize = 4, Number,
            "A sequence that occurs less often is not listed.";
    }
    simulation {
        LONGEST_LAUNCH_NANOS: i64 = 100_000, Nanos,
            "A launch that takes longer was blocked: the queue was full.";
        LONGEST_GRAPH_LAUNCH_NANOS: i64 = 2_000_000, Nanos,
            "Launching a graph of a thousand kernels takes about a millisecond.";
    }
    small_kernels {
        LEFT_OF_LOOPS: f64 = 0.5, Share,
            "One call for all takes about half the time of many narrow ones, each with its own start and end.";
        LEFT_OF_HELD: f64 = 0.1, Share,
            "Share of a chain's time that remains if its large intermediate is not written and read: its \
             arithmetic.";
    }
    stops {
        LONGEST_LAUNCH_DELAY_NANOS: i64 = 100_000, Nanos,
            "A launch reaches an idle stream in some 10 µs, under a profiler in some 50. Work that stays in a queue \
             longer waits for something.";
    }
    synchronisation {
        FEW_LAUNCHES_NANOS: i64 = 30_000, Nanos,
            "A shorter wait does not drain the queue.";
    }
    tables {
        ROWS_TO_USED: f64 = 8.0, Number,
            "With fewer rows per used one, a sparse gradient is not worthwhile.";
        SHARE_OF_PARAMETERS: f64 = 0.5, Share,
            "A smaller table does not matter among the other parameters.";
    }
    trust {
        TOO_MUCH_PROFILER: f64 = 0.10, Share,
            "Above this share, profiler overhead is reported.";
        MOSTLY_COLD: f64 = 0.4, Share,
            "Above this share of cold start, nothing can be said about later steps.";
    }
    unaligned {
        WHOLE_BYTES: u32 = 16, Bytes,
            "Bytes of one full load of a thread.";
        SHARE_BY_TWO_BYTES: f64 = 0.125, Share,
            "Share of the peak rate that two-byte loads allow: 95 to 152 of 989 TFLOP/s were measured on an H200. \
             Tensor cores of half that speed wait less.";
        FAST_CORES: f64 = 600e12, Number,
            "FLOP/s of tensor cores from which two-byte loads hold them up so much: those of an H100 and later.";
        LEAST_LEFT: f64 = 0.05, Share,
            "Without shapes, the least share of a GEMM's time that remains.";
    }
    undisturbed {
        MOST_LOADING: f64 = 0.3, Share,
            "If loading takes more of the step than this, batches vary as much as disturbances do.";
        SAME_WORK: f64 = 0.1, Share,
            "Light and full recordings of the same work differ by at most this share in their operators per step.";
        LEAST_LEFT: f64 = 0.75, Share,
            "The least share of a light recording that a full one may leave.";
        WEIGHT: f64 = 0.5, Share,
            "The weight of a full recording that costs no more than a light one; halved if it costs a third of the \
             step more.";
        HALVED_AT: f64 = 1.0 / 3.0, Share,
            "The share of the step at which that weight is halved.";
    }
    uneven_steps {
        FEWEST_STEPS: usize = 3, Number,
            "Fewer steps have no usual length; the first is not among them.";
        USUAL_SPREAD: f64 = 0.25, Share,
            "Steps that are as long as usual are within this share of the median, and at least half of them are.";
        STEPS_FOR_A_RATE: usize = 10, Number,
            "An event that happened once in fewer steps has no rate.";
    }
    unread_gradients {
        LEAST_UNREAD_SHARE: f64 = 0.3, Share,
            "Least share of the elements with a gradient that no optimizer reads.";
        FEWEST_PER_STEP: f64 = 4.0, Number,
            "Fewer unread gradients are an oversight that costs nothing.";
        MOST_BEFORE: usize = 4, Number,
            "How many nodes before a gradient's accumulation may include the one that computed it.";
    }
}
