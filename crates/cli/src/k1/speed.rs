//! `headroom k1 --model tree --speed`: times habits that the bottleneck report blames, each against its remedy on the
//! tree.

use super::Arguments;
use super::tree::{check_k, design, settings};
use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::study::state::compact;
use anyhow::ensure;
use headroom_experiments::k1::tree::speed;
use headroom_experiments::turns::Patience;
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::k1_speed::{K1_SPEED_FILE, K1SpeedRecord};
use headroom_record::provenance::Provenance;
use headroom_record::timestamp::utc_iso;
use headroom_report::k1_speed as text;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

pub const SPEED_MARKDOWN_FILE: &str = "k1-speed.md";

pub fn run(arguments: &Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let settings = settings(arguments)?;
    let design = design(arguments, &settings, settings.threads)?;
    let model = &design.tree.model;
    check_k(arguments, model)?;
    let folder = match &arguments.output_dir {
        Some(folder) => folder.clone(),
        None => PathBuf::from(format!("runs/k1-speed-{}", compact(&utc_iso(SystemTime::now()), '-'))),
    };
    ensure!(
        !folder.join(K1_SPEED_FILE).exists(),
        "{} already holds results of this kind\n  help: name another folder",
        folder.display()
    );
    fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
    let machine = settings.gpu.as_ref().map_or(&settings.machine.cpu_name, |gpu| &gpu.name);
    let version = settings.passes.label();
    entry.begin(&About {
        folder: Some(&folder),
        size: Some("tree"),
        version: Some(&version),
        configuration: json!({ "k": arguments.k, "speed": true }),
        device: settings.device.name(),
        machine,
        threads: settings.threads,
        name: None,
    });
    let k = arguments.k as usize;
    output::note("timing a run from its first step on, then five habits against their remedies");
    let shown = speed::shown(&design, k, arguments.seed)?;
    let patience = Patience { rounds: 8, most_rounds: 64, time: Duration::from_secs(arguments.time) };
    let rows = speed::habits(&design, k, arguments.seed, patience)?;
    let parameters = model.parameters().total();
    let record = K1SpeedRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        version,
        device: settings.device.name().into(),
        machine: machine.clone(),
        threads: settings.threads as u64,
        parameters,
        nodes: model.n_layers as u64,
        batch_size: design.tree.shape.batch_size as u64,
        seq_len: design.tree.shape.seq_len as u64,
        rows,
        shown,
        total_seconds: started.elapsed().as_secs_f64(),
        provenance: Provenance::default(),
    }
    .with_provenance();
    write_json(&folder.join(K1_SPEED_FILE), &record)?;
    write_atomically(&folder.join(SPEED_MARKDOWN_FILE), text::markdown(&record).as_bytes())?;
    entry.figures(Headline { parameters: Some(parameters), measured: true, ..Headline::default() });
    arguments.shown.print(&record, text::terminal)?;
    output::note(&format!("{K1_SPEED_FILE} and {SPEED_MARKDOWN_FILE} are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
