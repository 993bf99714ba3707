//! `headroom compare A B`: what changed between two traces, and a gate on it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use headroom_diagnosis::compare::{Limit, compare};
use headroom_report::compare as formats;

use crate::{analyze, output};

/// Compare two traces, or the traces of two folders: steps, operators, kernels, memory, findings gone and new.
#[derive(clap::Args)]
pub struct Arguments {
    /// The trace or folder before
    before: PathBuf,
    /// The trace or folder after
    after: PathBuf,
    /// Exit with 1 when a figure changed beyond this: "step>5%", "memory>10%", "op:aten::mm>20%"; may be given again
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    packed: analyze::Packed,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let thresholds = analyze::thresholds(&[])?;
    let read = |path: PathBuf| analyze::read_traces(&[path], arguments.packed.ratio());
    let before = analyze::measured(&read(arguments.before)?, &[], analyze::About::default(), thresholds.clone())?;
    let after = analyze::measured(&read(arguments.after)?, &[], analyze::About::default(), thresholds)?;
    let comparison = compare(&before, &after);
    output::result(&if arguments.json { formats::json(&comparison) } else { formats::text(&comparison) })?;
    let mut code = ExitCode::SUCCESS;
    for limit in &arguments.fail_if {
        if let Some(relative) = limit.exceeded(&comparison) {
            output::note(&format!("beyond {}: {:+.1}%", limit.text, 100.0 * relative));
            code = ExitCode::from(1);
        }
    }
    Ok(code)
}
