//! `headroom compare A B`: reports what changed between two traces, and applies limits to it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use headroom_diagnosis::compare::{Answer, Limit, compare};
use headroom_report::compare as formats;

use crate::shown::{Plain, Shown};
use crate::undecided::Undecided;
use crate::{analyze, output};

/// Compare two traces, or the traces in two folders: steps, operators, kernels, memory, resolved and new findings.
///
/// The traces are aligned by structure: operators at the sizes of their inputs and their place in the script. The largest
/// growth comes first. Figures that a trace distorts or does not record are not compared.
///
/// A limit is broken if the whole 95% interval of a change lies beyond it, kept if the whole interval lies within it, and
/// undecided otherwise. Counts (memory, kernels, launches) have no interval and are compared directly.
#[derive(clap::Args)]
pub struct Arguments {
    /// The trace or folder before the change
    before: PathBuf,
    /// The trace or folder after the change
    after: PathBuf,
    /// Exit with 1 if a figure changes beyond this limit: "step>5%", "memory>10%", "op:aten::mm>20%"; repeatable
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,
    /// Result of an undecided limit: pass (exit 0) or fail (exit 1)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Undecided::Pass)]
    undecided: Undecided,
    #[command(flatten)]
    shown: Shown<Plain>,
    #[command(flatten)]
    packed: analyze::Packed,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let side = |path: &Path| analyze::of_one_run(path, arguments.packed.ratio());
    let (before, after) = (side(&arguments.before)?, side(&arguments.after)?);
    let mut comparison = compare(&before, &after);
    comparison.gates = arguments.fail_if.iter().map(|limit| limit.judge(&comparison)).collect::<Result<_, _>>()?;
    arguments.shown.print(&comparison, formats::text)?;
    let is_any = |answer: Answer| comparison.gates.iter().any(|gate| gate.result == answer);
    if is_any(Answer::Undecided) {
        output::note("not decided: more recorded steps narrow the interval; --undecided fail makes this exit 1");
    }
    let is_failure = is_any(Answer::Fail) || is_any(Answer::Undecided) && arguments.undecided.is_failure();
    Ok(ExitCode::from(u8::from(is_failure)))
}
