//! Flags that select what is recorded and written: options of `train`, all on for `profile`.

use clap::ValueEnum;
use headroom_record::config::ProfilersEnabled;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct ProfilingArguments {
    /// Record every call of some steps: the trace, its operators and its memory
    #[arg(long, visible_alias = "enable-pytorch-profiler", overrides_with = "profile")]
    pub profile: bool,
    /// Count FLOPs and bytes, and compare them with the machine's roofline
    #[arg(
        long,
        visible_aliases = ["enable-deepspeed-flops", "computational-intensity", "generate-roofline"],
        overrides_with = "flops"
    )]
    pub flops: bool,
    /// Record the live memory at every call
    #[arg(long, visible_alias = "enable-memory-profiling", overrides_with = "profile_memory")]
    pub profile_memory: bool,
    /// Write only the table of operators
    #[arg(long, overrides_with = "profile_operators")]
    pub profile_operators: bool,
    /// All of the above
    #[arg(long, overrides_with = "enable_all_profiling")]
    pub enable_all_profiling: bool,
    /// All of the above, and report.md and report.html
    #[arg(long, overrides_with = "generate_report")]
    pub generate_report: bool,
    /// Train nothing: analyze the traces in a folder, as `headroom analyze DIR` does; --output-dir says where the report goes
    #[arg(long, value_name = "DIR")]
    pub analyze_existing: Option<PathBuf>,
    /// Steps to record, after --warmup-steps; the first step of a run is never among them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub profile_steps: u64,
    /// Start recording at this step instead
    #[arg(long, value_name = "STEP")]
    pub flops_profile_step: Option<u64>,
    /// Sort order of the operator table
    #[arg(long, value_enum, default_value_t = SortBy::SelfTime)]
    pub sort_by: SortBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum SortBy {
    #[value(alias = "cpu_time_total", alias = "cuda_time_total")]
    SelfTime,
    Count,
    Flops,
    Bytes,
}

impl ProfilingArguments {
    pub fn enabled(&self) -> ProfilersEnabled {
        let all = self.enable_all_profiling || self.generate_report;
        ProfilersEnabled {
            trace: all || self.profile,
            flops: all || self.flops,
            memory: all || self.profile || self.profile_memory,
            operators: all || self.profile || self.profile_operators,
        }
    }

    pub fn is_on(&self) -> bool {
        self.enabled() != ProfilersEnabled::default()
    }
}
