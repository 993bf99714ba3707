//! `headroom explain CODE`: a rule's page.

use std::process::ExitCode;

use anyhow::{Result, bail};
use headroom_diagnosis::source::rules;
use headroom_diagnosis::trace_rules::TRACE_RULES;

/// Show a rule's page: what it finds, why it is slow, an example, the fix, how a trace proves it.
#[derive(clap::Args)]
pub struct Arguments {
    /// A code (TP101) or a name (item-per-step); without one, the list of rules.
    code: Option<String>,
}

#[expect(clippy::print_stdout, reason = "the page is the result")]
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Some(code) = arguments.code else {
        for rule in rules::RULES {
            println!("{}  {}", rule.code, rule.name);
        }
        for rule in TRACE_RULES {
            println!("{}  {}", rule.code, rule.name);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let of_trace =
        |rule: &&headroom_diagnosis::trace_rules::TraceRule| rule.code.eq_ignore_ascii_case(&code) || rule.name == code;
    if let Some(rule) = TRACE_RULES.iter().find(of_trace) {
        print!("{}", rule.page);
        return Ok(ExitCode::SUCCESS);
    }
    let Some(rule) = rules::find(&code) else {
        bail!("no rule {code}: `headroom explain` without a code lists all");
    };
    print!("{}", rule.page);
    Ok(ExitCode::SUCCESS)
}
