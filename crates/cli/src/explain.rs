//! `headroom explain CODE`: shows a rule's page.

use std::process::ExitCode;

use anyhow::{Result, bail};
use headroom_diagnosis::trace_rules::TRACE_RULES;
use headroom_lint::rules;
use serde_json::json;

use crate::shown::{Plain, Shown};

/// Show a rule's page: what it finds, why it is slow, an example, the fix, how a trace proves it.
#[derive(clap::Args)]
pub struct Arguments {
    /// A code (TP101) or a name (item-per-step); without one, the list of rules.
    code: Option<String>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Some(code) = arguments.code else {
        let of_source = rules::RULES.iter().map(|rule| (rule.code, rule.name));
        let all: Vec<_> = of_source.chain(TRACE_RULES.iter().map(|rule| (rule.code, rule.name))).collect();
        let rules: Vec<_> = all.iter().map(|(code, name)| json!({ "code": code, "name": name })).collect();
        let list = |_: &_| all.iter().map(|(code, name)| format!("{code}  {name}\n")).collect();
        arguments.shown.print(&json!({ "rules": rules }), list)?;
        return Ok(ExitCode::SUCCESS);
    };
    let of_trace = TRACE_RULES.iter().find(|rule| rule.code.eq_ignore_ascii_case(&code) || rule.name == code);
    let found = of_trace.map(|rule| (rule.code, rule.name, rule.page));
    let found = found.or_else(|| rules::find(&code).map(|rule| (rule.code, rule.name, rule.page)));
    let Some((code, name, page)) = found else {
        bail!("no rule {code}: `headroom explain` without a code lists all");
    };
    // A page is Markdown; only JSON says which rule it belongs to.
    arguments.shown.print(&json!({ "code": code, "name": name, "page": page }), |_| page.to_string())?;
    Ok(ExitCode::SUCCESS)
}
