//! `headroom apply`: writes the patch of a finished optimization into the script's files, without running it again.

use crate::optimize::difference;
use crate::output;
use crate::registry::{Registry, RegistryError};
use crate::shown::{Plain, Shown};
use anyhow::{Context, Result, bail};
use headroom_record::atomic::write_json;
use headroom_record::reading;
use headroom_record::script::ScriptRecord;
use headroom_record::validation::VALIDATION_FILE;
use headroom_scripts::stored_patch::{Sources, StoredPatch, write_changed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Apply the patch that `headroom optimize -- COMMAND` offered, without running anything again. Refused if a file of the script has
/// changed since.
#[derive(clap::Args)]
pub struct Arguments {
    /// The run that offered it: a number, a name, newest, or its folder of results
    run: String,
    /// Print the patch and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    shown: Shown<Plain>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (results, run) = results_of(&arguments.run)?;
    let (mut document, record) = read_record(&results)?;
    let stored = match StoredPatch::read(&results)? {
        Some(stored) => stored,
        None => bail!("{} offers no patch: {}", results.display(), why_none(&record)),
    };
    if let (Some(run), Some(other)) = (run, stored.run)
        && run != other
    {
        bail!(
            "the results of run {run} were replaced by those of run {other}, in {}\n  help: `headroom apply {other}` applies those",
            results.display()
        );
    }
    if let Some((name, gate)) = record.gates.iter().find(|(_, gate)| gate.result == "fail") {
        bail!(
            "the gate {name} of this run failed ({}), so its patch is not applied\n  help: {} shows it; apply it by hand if you \
             know better",
            gate.about,
            results.join("optimize.patch").display()
        );
    }
    let changed = match stored.sources(&results)? {
        Sources::Patched => vec![],
        Sources::AsMeasured(changed) => changed,
    };
    if !arguments.dry_run {
        if let Some(path) = write_changed(&stored.folder, &changed)? {
            bail!("{} has changed just now\n  help: try again", stored.folder.join(path).display());
        }
        document["patch"]["applied"] = true.into();
        write_json(&results.join(VALIDATION_FILE), &document)?;
    }
    let files: Vec<String> = changed.iter().map(|file| stored.folder.join(&file.path).display().to_string()).collect();
    let text = difference(&changed);
    match (arguments.shown.is_json(), arguments.dry_run, changed.is_empty()) {
        (true, dry_run, is_nothing) => {
            let answer = json!({
                "run": stored.run,
                "folder": stored.folder,
                "files": files,
                "applied": !dry_run && !is_nothing,
                "dry_run": dry_run,
                "difference": text,
            });
            output::result(&format!("{answer:#}\n"))?;
        }
        (_, _, true) => output::text("The patch is in the files already; nothing is changed.\n")?,
        (_, true, _) => {
            output::difference(&text)?;
            output::note("nothing is written: this was a dry run");
        }
        _ => output::text(&format!("The patch is written to {}.\n{}", files.join(", "), measured(&record)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The results folder, and the run's number if the registry named it.
fn results_of(which: &str) -> Result<(PathBuf, Option<i64>)> {
    // A name of a run has no separator; a folder in the working folder has a result in it.
    let folder = Path::new(which);
    if which.contains(std::path::MAIN_SEPARATOR) || folder.join(VALIDATION_FILE).is_file() {
        return Ok((folder.to_path_buf(), None));
    }
    let run = match Registry::open()?.find(which) {
        Err(RegistryError::NoSuchRun(_)) => bail!(
            "there is no run `{which}`, and no folder of results\n  help: `headroom runs list --command optimize` shows their \
             numbers and names"
        ),
        found => found?,
    };
    let folder = match (run.start.command.as_str(), run.start.folder) {
        ("optimize", Some(folder)) => PathBuf::from(folder),
        (command, _) => bail!(
            "run {} is a run of `{command}`, which offers no patch\n  help: `headroom runs list --command optimize` shows those \
             that may",
            run.id
        ),
    };
    if !folder.is_dir() {
        bail!("the results of run {} are gone: there is no {}", run.id, folder.display());
    }
    Ok((folder, Some(run.id)))
}

/// validation.json as it is, and as the record of a script.
fn read_record(results: &Path) -> Result<(Value, ScriptRecord)> {
    let file = results.join(VALIDATION_FILE);
    if !file.is_file() {
        bail!(
            "{} holds no result of `headroom optimize -- COMMAND`: it has no {VALIDATION_FILE}\n  help: name the run, or its folder, \
             such as runs/optimize-train",
            results.display()
        );
    }
    let bytes = reading::read(&file, reading::RECORD).with_context(|| format!("cannot read {}", file.display()))?;
    let document: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not valid JSON", file.display()))?;
    if document["kind"] != "script" {
        bail!(
            "{} is not the result of optimizing a script\n  help: passes of headroom's own model are applied with `headroom train \
             --passes`",
            file.display()
        );
    }
    let record = serde_json::from_value(document.clone())
        .with_context(|| format!("{} was not written by this version", file.display()))?;
    Ok((document, record))
}

fn why_none(record: &ScriptRecord) -> String {
    match &record.patch {
        _ if record.dry_run => "it was a dry run\n  help: run it without --dry-run".into(),
        None => "nothing was kept".into(),
        Some(patch) if patch.applied => "it was written before this version could apply one".into(),
        Some(patch) => match (&patch.note, patch.by_hand.first()) {
            (Some(note), _) => note.clone(),
            (None, Some(line)) => format!("what was kept cannot be written as code\n  help: by hand, {line}"),
            (None, None) => "it was written by an older version\n  help: `git apply` takes its optimize.patch".into(),
        },
    }
}

fn measured(record: &ScriptRecord) -> String {
    let Some(patch) = &record.patch else { return String::new() };
    match (patch.speedup, patch.ci95_low, patch.ci95_high) {
        (Some(speedup), Some(low), Some(high)) => {
            format!("When it was measured, the script was {speedup:.2}× as fast ({low:.2} to {high:.2}) with it.\n")
        }
        _ => String::new(),
    }
}
