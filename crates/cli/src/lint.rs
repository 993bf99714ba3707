//! `headroom lint PATH…`: finds what costs time at every step of a training script.

mod arguments;
mod outcome;
mod standard_input;
mod watch;
mod writing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use headroom_diagnosis::join::{join, measure};
use headroom_lint::fix::Safety;
use headroom_lint::{Problem, Repairs, Selection, SourceReport, check_stack, lint_within, repair_within, silence};
use headroom_report::lint as formats;
use headroom_sources::configuration::{Choice, Configurations};
use headroom_sources::discovery::{self, Scripts};
use headroom_trace::GzipRatio;

use crate::analyze::measuring::{About, measured, one_run, read_traces, thresholds};
use crate::failure::RunFailed;
use crate::output::{self, note};
use outcome::Outcome;

pub use arguments::Arguments;

use arguments::Format;

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let arguments = arguments.checked()?;
    check_threads()?;
    if let [only] = &arguments.paths[..]
        && !arguments.is_stdin()
        && !only.exists()
    {
        bail!("there is no file or folder {}", only.display());
    }
    if arguments.watch {
        return watch::run(&arguments);
    }
    once(&arguments).map(Outcome::exit_code)
}

/// Reads, reports and writes once.
fn once(arguments: &Arguments) -> Result<Outcome> {
    let configurations = arguments.configurations()?;
    let scripts = if arguments.is_stdin() {
        standard_input::read(arguments.stdin_filename.as_deref(), &configurations)?
    } else {
        discovery::read(discovery::list(&arguments.paths, &configurations)?)
    };
    let selection = selection(arguments, &configurations, &scripts)?;
    let least = if arguments.unsafe_fixes { Safety::Unsafe } else { Safety::Safe };
    let Scripts { inputs, projects, .. } = &scripts;
    let mut fixed = 0;
    let mut report = if arguments.add_noqa {
        return add_noqa(arguments, &scripts, &selection);
    } else if arguments.diff {
        let repairs = repair_within(inputs, projects, &selection, least);
        return differences(arguments, &scripts, &repairs);
    } else if arguments.fix {
        let repairs = repair_within(inputs, projects, &selection, least);
        writing::write(&repairs.files, &scripts)?;
        note(&what_was_fixed(&repairs));
        fixed = repairs.applied.len();
        repairs.remaining
    } else {
        let mut report = lint_within(inputs, projects, &selection);
        if !arguments.trace.is_empty() {
            measure_with(&mut report, &arguments.trace, &scripts)?;
        }
        report
    };
    add_unread(&mut report, &scripts);
    show(arguments, &report)?;
    Outcome::of(&report, fixed, arguments, &configurations, &scripts)
}

/// Adds files that could not be read to those that were asked about.
fn add_unread(report: &mut SourceReport, scripts: &Scripts) {
    report.files += scripts.unread.len();
    report.problems.extend(scripts.unread.iter().cloned());
}

fn add_noqa(arguments: &Arguments, scripts: &Scripts, selection: &Selection) -> Result<Outcome> {
    let silenced = silence(&scripts.inputs, &scripts.projects, selection);
    writing::write(&silenced.files, scripts)?;
    for (code, place) in &silenced.left {
        note(&format!(
            "warning: {} {code}: its lines end inside a string, where a comment cannot be added",
            place.shown()
        ));
    }
    let all_read = note_problems(silenced.problems.iter().chain(&scripts.unread));
    note(&format!("{} silenced in {}", findings(silenced.findings), files(silenced.files.len())));
    if arguments.shown.is_json() {
        let told = serde_json::json!({ "silenced": silenced.findings, "files": silenced.files.len() });
        writing::result(arguments.output_file.as_deref(), &format!("{told:#}\n"))?;
    }
    Ok(if all_read { Outcome::Done } else { Outcome::NotRead })
}

/// Reports the files that were not fully read; returns true if all were.
fn note_problems<'p>(problems: impl Iterator<Item = &'p (String, Problem)>) -> bool {
    let mut all_read = true;
    for (path, problem) in problems {
        note(&format!("error: {}: not fully read: {}", problem.place(path), problem.message));
        all_read = false;
    }
    all_read
}

/// Shows what the fixes would change; the outcome is `Found` if they would change something.
fn differences(arguments: &Arguments, scripts: &Scripts, repairs: &Repairs) -> Result<Outcome> {
    let shown = repairs.files.iter().map(|file| formats::difference(&file.path, &file.before, &file.after));
    writing::result_exactly(arguments.output_file.as_deref(), &shown.collect::<String>())?;
    let all_read = note_problems(repairs.remaining.problems.iter().chain(&scripts.unread));
    Ok(match (all_read, repairs.files.is_empty() || arguments.exit_zero) {
        (false, _) => Outcome::NotRead,
        (true, false) => Outcome::Found,
        (true, true) => Outcome::Done,
    })
}

/// `2 findings fixed in 1 file; 3 more with --unsafe-fixes`.
fn what_was_fixed(repairs: &Repairs) -> String {
    let waiting = |finding: &&headroom_lint::SourceFinding| finding.fix.safety == Safety::Unsafe;
    let more = match repairs.remaining.findings.iter().filter(waiting).count() {
        0 => String::new(),
        count => format!("; {count} more with --unsafe-fixes"),
    };
    format!("{} fixed in {}{more}", repairs.applied.len(), files(repairs.files.len()))
}

fn findings(count: usize) -> String {
    if count == 1 { "1 finding".to_string() } else { format!("{count} findings") }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_string() } else { format!("{count} files") }
}

fn show(arguments: &Arguments, report: &SourceReport) -> Result<()> {
    let format = arguments.shown.format();
    let text = match format {
        Format::Json if arguments.statistics => formats::statistics_as_json(report),
        _ if arguments.statistics => formats::statistics(report),
        Format::Text => formats::text(report),
        Format::Json => formats::json(report),
        Format::Sarif => formats::sarif(report),
        Format::Github => formats::github(report),
        Format::Gitlab => formats::gitlab(report),
        Format::Markdown => formats::markdown(report),
    };
    if arguments.is_stdin() && arguments.fix && arguments.output_file.is_none() {
        // Standard output carries the fixed script: findings go to stderr.
        note(text.trim_end());
        return Ok(());
    }
    match (&arguments.output_file, format) {
        (None, Format::Text) => Ok(output::text(&text)?),
        (file, _) => writing::result(file.as_deref(), &text),
    }
}

/// Joins the traces to the findings: each gets its measured share.
fn measure_with(report: &mut SourceReport, traces: &[PathBuf], scripts: &Scripts) -> Result<()> {
    let traces = one_run(read_traces(traces, GzipRatio::Usual)?, "--trace")?;
    let mut analysis = measured(&traces, About::default(), thresholds(&[])?)?;
    join(&mut analysis.findings, report, &scripts.inputs, &scripts.projects);
    measure(report, &analysis.findings);
    for note_of_trace in &analysis.trust.notes {
        note(&format!("caution: {note_of_trace}"));
    }
    Ok(())
}

/// Reports on the scripts at `paths`, and returns the scripts too.
pub fn lint_sources(paths: &[PathBuf]) -> Result<(SourceReport, Scripts)> {
    check_threads()?;
    let configurations = Configurations::nearest();
    let scripts = discovery::read(discovery::list(paths, &configurations)?);
    if let Some((path, problem)) = scripts.unread.first() {
        bail!("{}: {}", problem.place(path), problem.message);
    }
    let report = lint_within(&scripts.inputs, &scripts.projects, &Selection::default());
    Ok((report, scripts))
}

/// Checks that a thread for reading scripts can start: deep trees need deep stacks, and a process may have too little
/// memory for one.
pub fn check_threads() -> Result<()> {
    check_stack().map_err(|error| {
        let help = "free memory, or raise this process's limit (ulimit -v)";
        RunFailed(format!("cannot start a thread that reads scripts: {error}\n  help: {help}")).into()
    })
}

/// The command line's choice of rules, or that of each file's configuration.
fn selection(arguments: &Arguments, configurations: &Configurations, scripts: &Scripts) -> Result<Selection> {
    let Arguments { select, ignore, pedantic, .. } = arguments;
    let choice = Choice { select: select.clone(), ignore: ignore.clone(), pedantic: *pedantic };
    let of_file = |folder: &Path, file: &Path| -> Result<Selection> {
        Ok(configurations.of_folder(folder)?.selection(&choice, file)?)
    };
    // Unknown rules are an error even if there is no file.
    let mut by_path = vec![(String::new(), of_file(Path::new("."), Path::new(""))?)];
    for (index, file) in scripts.files.iter().enumerate().filter(|(index, _)| scripts.projects.is_asked(*index)) {
        let chosen = of_file(file.parent().unwrap_or(Path::new("/")), file)?;
        by_path.push((scripts.inputs[index].path.clone(), chosen));
    }
    Ok(Selection::by_path(by_path))
}
