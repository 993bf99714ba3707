//! Numbers that the cost of findings is based on, each with its unit and its source.

/// Share of the step. A bound that leaves less says nothing: no training step shrinks to a twentieth by one remedy.
pub const LEAST_LEFT_BY_A_BOUND: f64 = 0.05;
/// Share of the step. Smaller costs are not reported, and smaller savings are not worth a line of the roadmap: steps of
/// one run vary by more.
pub const LEAST_COST: f64 = 0.0005;
/// Share of the step. Work that is computed for nothing is reported from here on: it is found by likeness, which may
/// err.
pub const LEAST_NEEDLESS: f64 = 0.03;
/// Share of the step. A finding of at least this share that costs less than half of it says why.
pub const WORTH_A_REASON: f64 = 0.01;

/// Share of the tensor cores' rate that fused attention reaches over both passes: 43% follows from step times on an
/// H200.
pub const FLASH_SHARE: f64 = 0.40;
/// Share of the time of GEMMs that write or read scores which fused attention takes, if FLOPs are unknown. It is as
/// fast for heads of 128, and nearly twice as fast for heads of 64, where moving scores bounds the GEMMs.
pub const FLASH_OF_PRODUCT: f64 = 0.6;
/// The same at best.
pub const LEAST_OF_PRODUCT: f64 = 0.2;
/// Share of the memory bandwidth that one kernel for all parameters, or a copy on the device, reaches.
pub const STREAM_SHARE: f64 = 0.8;
/// Share of its roof that a tuned operator reaches.
pub const ROOF_SHARE: f64 = 0.7;
/// Share of the time above the roof that a pass of ours saves: passes bound by 49.5% of a step gained 1.44×, which is
/// 30.6%.
pub const PASS_SHARE: f64 = 0.62;
/// Share of the link's rate that copies from pinned memory reach.
pub const PINNED_SHARE: f64 = 0.85;
/// Worker processes that share the loader's work, where the trace does not say how many cores the machine has; also
/// the most that are assumed where it does.
pub const WORKERS: usize = 8;
/// The share of a loader's work spent on taking batches over from workers is one in this many.
pub const HANDED_OVER: i64 = 32;
