//! `headroom explain CODE`: a rule's page.

use std::process::ExitCode;

use anyhow::{Result, bail};
use headroom_diagnosis::trace_rules::TRACE_RULES;
use headroom_lint::rules;

use crate::output;

/// Show a rule's page: what it finds, why it is slow, an example, the fix, how a trace proves it.
#[derive(clap::Args)]
pub struct Arguments {
    /// A code (TP101) or a name (item-per-step); without one, the list of rules.
    code: Option<String>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Some(code) = arguments.code else {
        let of_source = rules::RULES.iter().map(|rule| (rule.code, rule.name));
        let all = of_source.chain(TRACE_RULES.iter().map(|rule| (rule.code, rule.name)));
        output::result(&all.map(|(code, name)| format!("{code}  {name}\n")).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    };
    let of_trace = TRACE_RULES.iter().find(|rule| rule.code.eq_ignore_ascii_case(&code) || rule.name == code);
    let Some(page) = of_trace.map(|rule| rule.page).or_else(|| rules::find(&code).map(|rule| rule.page)) else {
        bail!("no rule {code}: `headroom explain` without a code lists all");
    };
    output::result(page)?;
    Ok(ExitCode::SUCCESS)
}
