//! A study on disk: study.json is complete at any moment and says what is done, so that `--resume` can continue.

use super::Arguments;
use super::plan::plan_run;
use super::rates::reference_rates;
use super::request::{check_same, request};
use anyhow::{Context, bail, ensure};
use headroom_graph::cost::Rates;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::provenance::Origin;
use headroom_record::reading;
use headroom_record::study::{
    MeasuredFigures, PlannedFigures, STUDY_FILE, StudyMachine, StudyRecord, StudyRequest, StudyRow, StudyStatus,
};
use headroom_record::timestamp::utc_iso;
use headroom_report::study as text;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub struct Study {
    pub folder: PathBuf,
    pub record: StudyRecord,
    pub rates: Rates,
    /// Held while the study runs.
    _lock: Option<File>,
}

const MIB: f64 = 1024.0 * 1024.0;

/// The default folder of studies: `runs/study-20261115-021000`.
const FOLDER: &str = "runs";
const PREFIX: &str = "study-";

impl Study {
    /// Opens a new study, or the one to resume.
    pub fn open(arguments: &Arguments) -> anyhow::Result<Study> {
        if arguments.resume {
            return Study::resume(arguments);
        }
        let request = request(arguments)?;
        // Every combination is resolved before the first run, so that a wrong flag is reported now and not in an hour.
        let mut rows = vec![];
        for size in &request.sizes {
            for version in &request.versions {
                rows.push(row(size, version));
            }
        }
        let machine = check_all(&request, &rows)?;
        let folder = match &arguments.output_dir {
            Some(folder) => folder.clone(),
            None => new_folder(),
        };
        ensure!(
            !folder.join(STUDY_FILE).exists(),
            "{} already holds a study\n  help: continue it with --resume, or name another folder for a new one",
            folder.display()
        );
        fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
        let lock = lock(&folder)?;
        let rates = machine.1;
        let timestamp = utc_iso(SystemTime::now());
        let record = StudyRecord::new(timestamp, request, machine.0, rows);
        let study = Study { folder, record, rates, _lock: lock };
        study.save()?;
        Ok(study)
    }

    fn resume(arguments: &Arguments) -> anyhow::Result<Study> {
        let folder = match &arguments.output_dir {
            Some(folder) => folder.clone(),
            None => newest_unfinished()?,
        };
        let path = folder.join(STUDY_FILE);
        let bytes = reading::read(&path, reading::RECORD).map_err(FileError::new("read", &path))?;
        let record: StudyRecord =
            serde_json::from_slice(&bytes).with_context(|| format!("{} is not a study", path.display()))?;
        ensure!(
            record.schema_version == headroom_record::SCHEMA_VERSION,
            "{} has another layout ({})\n  help: start a new study",
            path.display(),
            record.schema_version
        );
        check_same(arguments, &record.request)?;
        let lock = lock(&folder)?;
        let (machine, rates) = check_all(&record.request, &record.runs)?;
        ensure!(
            machine.name == record.machine.name,
            "the study began on another machine ({})\n  help: start a new one here",
            record.machine.name
        );
        Ok(Study { folder, record, rates, _lock: lock })
    }

    pub fn save(&self) -> Result<(), FileError> {
        write_json(&self.folder.join(STUDY_FILE), &self.record)
    }

    pub fn set_running(&mut self, index: usize, process_id: Option<u32>) -> Result<(), FileError> {
        let row = &mut self.record.runs[index];
        row.status = StudyStatus::Running;
        row.process_id = process_id;
        self.save()
    }

    pub fn end(&mut self, index: usize, status: StudyStatus, note: Option<String>) -> Result<(), FileError> {
        let row = &mut self.record.runs[index];
        row.status = status;
        row.process_id = None;
        row.note = note;
        self.save()
    }

    /// Names the run's folder once and keeps it: a restarted run overwrites its own remains, and two cannot write at
    /// the same time.
    pub fn claim_run_folder(&mut self, index: usize) -> Result<PathBuf, FileError> {
        let several = self.record.request.versions.len() > 1;
        let row = &mut self.record.runs[index];
        let name = row.folder.get_or_insert_with(|| {
            let version = if several { format!("_{}", row.version.replace('+', "-")) } else { String::new() };
            format!("performance_results_{}{version}_{}", row.size, compact(&utc_iso(SystemTime::now()), '_'))
        });
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(FileError::new("make the folder", &path))?;
        self.save()?;
        Ok(path)
    }

    /// Peak memory divided by that of the version's first size, if that was measured.
    pub fn set_scaling_factors(&mut self) {
        for version in self.record.request.versions.clone() {
            let of_version = |row: &&mut StudyRow| row.version == version;
            let mut rows = self.record.runs.iter_mut().filter(of_version).peekable();
            let Some(first) = rows.peek().and_then(|row| row.measured.peak_memory_mb) else { continue };
            for row in rows {
                row.measured.scaling_factor = row.measured.peak_memory_mb.map(|peak| peak / first);
            }
        }
    }

    pub fn write_reports(&self) -> anyhow::Result<()> {
        write_atomically(&self.folder.join("study.md"), text::markdown(&self.record).as_bytes())?;
        write_atomically(&self.folder.join("study.html"), text::html(&self.record).as_bytes())?;
        Ok(())
    }
}

fn row(size: &str, version: &str) -> StudyRow {
    StudyRow {
        size: size.into(),
        version: version.into(),
        status: StudyStatus::Pending,
        folder: None,
        process_id: None,
        starts: 0,
        wall_seconds: None,
        note: None,
        planned: PlannedFigures::default(),
        measured: MeasuredFigures::default(),
    }
}

/// Resolves every run; returns their machine and its peaks, measured now if none are saved.
fn check_all(request: &StudyRequest, rows: &[StudyRow]) -> anyhow::Result<(StudyMachine, Rates)> {
    let mut found = None;
    for row in rows {
        let any_rates = Rates { product_flops: 1.0, bytes: 1.0, call_seconds: 0.0 };
        let planned = plan_run(request, row, any_rates)?;
        if found.is_none() {
            let peaks = reference_rates(&planned.settings)?;
            let machine = &planned.settings.machine;
            let described = StudyMachine {
                name: peaks.device,
                memory_total_mb: machine.memory_total_bytes as f64 / MIB,
                peak_flops: peaks.rates.product_flops,
                peak_bandwidth: peaks.rates.bytes,
                peak_measured: peaks.origin == Origin::Measured,
                peak_source: peaks.source,
            };
            found = Some((described, peaks.rates));
        }
    }
    found.context("there is nothing to study")
}

fn lock(folder: &Path) -> anyhow::Result<Option<File>> {
    let lock = File::open(folder).ok();
    if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
        bail!("another study is writing to {}\n  help: wait for it, or name another folder", folder.display());
    }
    Ok(lock)
}

fn new_folder() -> PathBuf {
    let name = format!("{PREFIX}{}", compact(&utc_iso(SystemTime::now()), '-'));
    let path = |suffix: String| Path::new(FOLDER).join(format!("{name}{suffix}"));
    let mut tries = (2..).map(|attempt| path(format!("-{attempt}")));
    let mut folder = path(String::new());
    while folder.exists() {
        folder = tries.next().unwrap_or(folder);
    }
    folder
}

/// `2026-11-15T02:10:00Z` as `20261115_021000`.
pub fn compact(iso: &str, between: char) -> String {
    iso.trim_end_matches('Z').replace([':', '-'], "").replace('T', &between.to_string())
}

fn newest_unfinished() -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(FOLDER).ok().into_iter().flatten().flatten();
    let mut studies: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)))
        .filter(|path| is_unfinished(&path.join(STUDY_FILE)))
        .collect();
    // Their names sort by time.
    studies.sort();
    studies.pop().context("there is no unfinished study under runs/\n  help: name its folder with --output-dir")
}

fn is_unfinished(path: &Path) -> bool {
    let record =
        reading::read(path, reading::RECORD).ok().and_then(|bytes| serde_json::from_slice::<StudyRecord>(&bytes).ok());
    record.is_some_and(|record| record.analysis.is_empty())
}
