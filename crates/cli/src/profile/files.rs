//! The files of a profile: lists, names and writes them, each atomically.

use super::records::ProfileRecords;
use super::{Analysed, Profiler};
use crate::train::settings::Settings;
use anyhow::Context;
use headroom_record::atomic::{FileError, write_atomically, write_atomically_with, write_json};
use headroom_record::attribution::AttributionRecord;
use headroom_record::flops::FLOPS_FILE;
use headroom_record::intensity::INTENSITY_FILE;
use headroom_record::memory::MEMORY_FILE;
use headroom_record::operators::OPERATORS_FILE;
use headroom_record::performance::PerformanceRecord;
use headroom_record::reading;
use headroom_record::roofline::ROOFLINE_FILE;
use headroom_record::timeline::TIMELINE_FILE;
use headroom_report::profile::{self as text, AboutRun, Profile};
use headroom_training::profile::Profiled;
use headroom_training::profile::events_file::{EventsAbout, write_events};
use headroom_training::profile::trace_file::{TraceAbout, write_trace};
use headroom_training::run::Outcome;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub const REPORT_MARKDOWN: &str = "report.md";
pub const REPORT_HTML: &str = "report.html";
/// Paths where the workshop's readers expect the report and the FLOPs.
pub const REPORT_COPY: &str = "performance_summary_report.md";
pub const FLOPS_FOLDER: &str = "flops_analysis";
/// Where the course looks for the traces of a study's run.
pub const COURSE_FOLDER: &str = "pytorch_profiles";

const NAMED: [&str; 9] = [
    FLOPS_FILE,
    INTENSITY_FILE,
    ROOFLINE_FILE,
    OPERATORS_FILE,
    MEMORY_FILE,
    TIMELINE_FILE,
    REPORT_MARKDOWN,
    REPORT_HTML,
    REPORT_COPY,
];

const SMALL: [&str; 3] = [FLOPS_FILE, INTENSITY_FILE, ROOFLINE_FILE];

/// Where the files of a profile are in its folder, whether they exist or not.
pub fn places(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let small = folder.join(FLOPS_FOLDER);
    let mut places: Vec<_> = NAMED.iter().map(|name| folder.join(name)).collect();
    places.extend(SMALL.iter().map(|name| small.join(name)));
    let course = folder.join(COURSE_FOLDER);
    for folder in [folder, course.as_path()].into_iter().filter(|path| *path == folder || path.is_dir()) {
        for entry in fs::read_dir(folder).map_err(FileError::new("read the folder", folder))? {
            let entry = entry.map_err(FileError::new("read the folder", folder))?;
            if is_trace_or_events(&entry.file_name().to_string_lossy()) {
                places.push(entry.path());
            }
        }
    }
    Ok(places)
}

/// Removes an older profile from a folder that is about to be rewritten; other files stay.
pub fn clear(folder: &Path) -> Result<(), FileError> {
    for path in places(folder)? {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(FileError::new("replace", &path)(error)),
            _ => {}
        }
    }
    // Empty now, unless someone put something else there.
    for folder in [FLOPS_FOLDER, COURSE_FOLDER].map(|name| folder.join(name)) {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// Copies the profile's files into another folder, where the course's readers look.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).map_err(FileError::new("make the folder", to))?;
    for entry in fs::read_dir(from).map_err(FileError::new("read the folder", from))? {
        let path = entry.map_err(FileError::new("read the folder", from))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if NAMED.contains(&&*name) || is_trace_or_events(&name) {
            let copied = |out: &mut dyn std::io::Write| {
                reading::open(&path).and_then(|mut file| std::io::copy(&mut file, out)).map(drop)
            };
            write_atomically_with(&to.join(&name), |out| copied(out))?;
        }
    }
    Ok(())
}

pub fn is_trace_or_events(name: &str) -> bool {
    (name.starts_with("trace_step_") && name.ends_with(".json"))
        || name.ends_with(".pt.trace.json")
        || name.starts_with("events.out.tfevents.")
}

/// Writes the requested files; returns the text for the terminal.
pub fn write_all(
    profiler: &Profiler,
    folder: &Path,
    profiled: &Profiled,
    (Analysed { about, analysis }, made): (&Analysed, &ProfileRecords),
    settings: &Settings,
    (outcome, performance, attribution): (&Outcome, &PerformanceRecord, Option<&AttributionRecord>),
) -> anyhow::Result<String> {
    let mut written = Written { folder, names: vec![] };
    let enabled = profiler.enabled;
    if enabled.trace {
        let host = if profiler.redact { "host".into() } else { host_name() };
        written.traces(profiled, about, &host)?;
        let started = profiled.recording.base_unix_nanos;
        let events = EventsAbout {
            started: started as f64 / 1e9,
            samples_per_step: settings.shape.batch_size * profiled.accumulation,
            seq_len: settings.shape.seq_len,
            peak_memory_mb: made.memory.peak_memory_mb,
            reserved_memory_mb: made.memory.reserved_memory_mb,
        };
        let name = events_name(started / 1_000_000_000, &host);
        write_atomically_with(&folder.join(&name), |out| write_events(&outcome.steps, &events, out))?;
        written.names.push(name);
    }
    if enabled.operators {
        written.json(OPERATORS_FILE, &made.operators)?;
    }
    if enabled.memory {
        written.json(MEMORY_FILE, &made.memory)?;
        written.json(TIMELINE_FILE, &made.timeline)?;
    }
    if enabled.flops {
        written.json(FLOPS_FILE, &made.flops)?;
        written.json(INTENSITY_FILE, &made.intensity)?;
        written.json(ROOFLINE_FILE, &made.roofline)?;
        let small = folder.join(FLOPS_FOLDER);
        fs::create_dir_all(&small).map_err(FileError::new("make the folder", &small))?;
        write_json(&small.join(FLOPS_FILE), &made.flops)?;
        write_json(&small.join(INTENSITY_FILE), &made.intensity)?;
        write_json(&small.join(ROOFLINE_FILE), &made.roofline)?;
    }
    let (name, label) = (settings.name(), settings.label());
    let about = AboutRun {
        name: &name,
        label: &label,
        performance,
        attribution,
        first_step_seconds: outcome.steps.first().map(|record| record.times.total.as_secs_f64()),
        turns: profiled.recording.turns().recorded.len() as u64,
    };
    let profile =
        Profile::of(analysis, Some(about)).context("the trace of the recorded steps does not say what ran")?;
    if profiler.report {
        let markdown = text::markdown(&profile);
        for name in [REPORT_MARKDOWN, REPORT_COPY] {
            write_atomically(&folder.join(name), markdown.as_bytes())?;
        }
        write_atomically(&folder.join(REPORT_HTML), text::html(&profile).as_bytes())?;
        written.names.extend([REPORT_MARKDOWN, REPORT_HTML].map(String::from));
    }
    Ok(text::terminal(&profile, &written.names))
}

struct Written<'a> {
    folder: &'a Path,
    names: Vec<String>,
}

impl Written<'_> {
    fn json(&mut self, name: &str, record: &impl serde::Serialize) -> Result<(), FileError> {
        write_json(&self.folder.join(name), record)?;
        self.names.push(name.into());
        Ok(())
    }

    /// Writes the same trace twice: under the workshop's name, and under one that TensorBoard's plugin recognises.
    fn traces(&mut self, profiled: &Profiled, about: &TraceAbout, host: &str) -> Result<(), FileError> {
        let other = plugin_name(profiled, about, host);
        for name in [about.name.clone(), other] {
            let about = TraceAbout { name: name.clone(), ..about.clone() };
            write_atomically_with(&self.folder.join(&name), |out| write_trace(profiled, &about, out))?;
            self.names.push(name);
        }
        Ok(())
    }
}

/// Writes the trace of one rank.
pub fn write_trace_alone(folder: &Path, profiled: &Profiled, about: TraceAbout, redact: bool) -> anyhow::Result<()> {
    let host = if redact { "host".into() } else { host_name() };
    // Another machine may not have the folder.
    fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
    let name = plugin_name(profiled, &about, &host);
    let about = TraceAbout { name: name.clone(), ..about };
    Ok(write_atomically_with(&folder.join(&name), |out| write_trace(profiled, &about, out))?)
}

/// The trace's file name: host, process and time distinguish the traces of several ranks.
fn plugin_name(profiled: &Profiled, about: &TraceAbout, host: &str) -> String {
    format!("{host}.{}.{}.pt.trace.json", about.process, profiled.recording.base_unix_nanos)
}

/// The file name that TensorBoard looks for.
pub fn events_name(started_seconds: u64, host: &str) -> String {
    format!("events.out.tfevents.{started_seconds}.{host}.{}.0", std::process::id())
}

pub fn host_name() -> String {
    let name = reading::read_text(Path::new("/proc/sys/kernel/hostname"), reading::SETTINGS).unwrap_or_default();
    // A dot would end the name too early for readers that split it.
    let name: String = name
        .trim()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
        .collect();
    if name.is_empty() { "localhost".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_profile_goes_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at(FLOPS_FOLDER)).unwrap();
        let old = ["trace_step_4_8.json", "a.1.2.pt.trace.json", "events.out.tfevents.1.a.2.0", REPORT_HTML];
        for name in old.iter().chain(&["notes.txt", "flops_analysis/flops_profile.json"]) {
            fs::write(at(name), "x").unwrap();
        }
        clear(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }
}
