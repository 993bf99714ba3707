//! Reading traces: a file, plain or gzipped, or a folder with one file per rank.

mod append;
mod event;
mod events;
mod fragment;
mod header;
mod json;
mod opening;
mod order;
mod text;
mod tracks;
mod words;

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use headroom_record::reading::{self, Refusal};
use rayon::prelude::*;
use thiserror::Error;

use crate::category::Category;
use crate::columns::NONE;
use crate::trace::Trace;
use events::{Events, MOST_BYTES_BESIDE_EVENTS};
use fragment::Fragment;
use header::{Found, Members};
pub use opening::begins_as_trace;
pub use text::GzipRatio;
use text::TooDense;

#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{} is not a profiler trace: {why}\n  help: give a Kineto or Chrome trace (.json, .json.gz), or a folder of them",
        path.display()
    )]
    NotATrace { path: PathBuf, why: String },
    #[error(
        "{} is compressed more tightly than a profiler's trace: {found}\n  help: if you know what it holds, allow it with \
         --allow-gz-ratio, or unpack it with `gunzip`",
        path.display()
    )]
    TooDense { path: PathBuf, found: TooDense },
    #[error("{} holds no trace: no file in it ends in .json or .json.gz{help}", path.display())]
    EmptyFolder { path: PathBuf, help: String },
}

/// Reads the traces at `path`: a file gives one, a folder one per rank, in order of rank.
pub fn read(path: &Path) -> Result<Vec<Trace>, ReadError> {
    read_packed(path, GzipRatio::Usual)
}

/// Like [`read`], with a choice of how much text a gzipped file may hold.
pub fn read_packed(path: &Path, ratio: GzipRatio) -> Result<Vec<Trace>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![read_one(path, ratio)?]);
    }
    let (files, mut skipped) = trace_files(path)?;
    let mut traces: Vec<Trace> = Vec::new();
    let mut first_refusal = None;
    for file in &files {
        match read_one(file, ratio) {
            Ok(trace) => traces.push(trace),
            // Other JSON files may lie beside the traces.
            Err(error @ ReadError::NotATrace { .. }) => {
                if let ReadError::NotATrace { why, .. } = &error {
                    skipped.push(format!("{}: {why}", file_name(file)));
                }
                first_refusal = first_refusal.or(Some(error));
            }
            // Neither a FIFO nor a device holds a rank's trace, whatever its name.
            Err(ReadError::Unreadable { source, path }) if Refusal::of(&source).is_some() => {
                skipped.push(format!("{}: {source}", file_name(file)));
                first_refusal = first_refusal.or(Some(ReadError::Unreadable { path, source }));
            }
            Err(error) => return Err(error),
        }
    }
    match first_refusal {
        Some(error) if traces.is_empty() => Err(error),
        _ => {
            traces.sort_by_key(Trace::rank);
            traces.iter_mut().take(1).for_each(|first| first.reading.skipped_files = skipped.clone());
            Ok(traces)
        }
    }
}

/// The trace in one file.
pub fn read_file(path: &Path) -> Result<Trace, ReadError> {
    read_one(path, GzipRatio::Usual)
}

/// Reads a trace and its light trace. A light trace has none of its own, whatever its header says.
fn read_one(path: &Path, ratio: GzipRatio) -> Result<Trace, ReadError> {
    let mut trace = read_alone(path, ratio)?;
    trace.light = light_trace(path, &trace, ratio);
    Ok(trace)
}

fn read_alone(path: &Path, ratio: GzipRatio) -> Result<Trace, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: path.to_path_buf(), source };
    let file = reading::open(path).map_err(unreadable)?;
    let source = text::open(file, ratio).map_err(unreadable)?;
    let mut trace = read_text(source).map_err(|problem| match problem {
        Problem::Io(source) => match too_dense(&source) {
            Some(found) => ReadError::TooDense { path: path.to_path_buf(), found },
            None => unreadable(source),
        },
        Problem::NotATrace(why) => ReadError::NotATrace { path: path.to_path_buf(), why },
    })?;
    trace.name = file_name(path);
    Ok(trace)
}

/// The light trace that the header names, if it lies in or below the trace's own folder. It may have been gzipped
/// since.
fn light_trace(path: &Path, trace: &Trace, ratio: GzipRatio) -> Option<Box<Trace>> {
    let name = trace.header.recording.as_ref()?.light_trace.as_ref()?;
    let is_below = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let plain = path.parent()?.join(name);
    let packed = path.parent()?.join(format!("{name}.gz"));
    // A link that leads out of the folder is not below it.
    let folder =
        fs::canonicalize(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))
            .ok()?;
    let is_there =
        |file: &PathBuf| fs::canonicalize(file).is_ok_and(|file| file.starts_with(&folder) && file.is_file());
    let found = [plain, packed].into_iter().find(|file| is_below && is_there(file))?;
    read_alone(&found, ratio).ok().map(Box::new)
}

/// The trace in `bytes`, plain text.
pub fn read_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
    read_text(bytes).map_err(|problem| match problem {
        Problem::Io(source) => ReadError::Unreadable { path: "memory".into(), source },
        Problem::NotATrace(why) => ReadError::NotATrace { path: "memory".into(), why },
    })
}

fn too_dense(error: &io::Error) -> Option<TooDense> {
    error.get_ref()?.downcast_ref().copied()
}

enum Problem {
    Io(io::Error),
    NotATrace(String),
}

/// Reads with one thread that fetches (and unpacks) the text, and others that parse it into columns.
fn read_text(source: impl io::Read + Send) -> Result<Trace, Problem> {
    thread::scope(|scope| {
        let (sender, blocks) = sync_channel(4);
        let fetching = scope.spawn(move || text::send_blocks(source, &sender));
        let parsed = parse(blocks);
        let mut sent = fetching.join().unwrap_or_default();
        let mut parsed = match (parsed, sent.broke_off.take()) {
            (_, Some(error)) if too_dense(&error).is_some() => return Err(Problem::Io(error)),
            (Ok(parsed), None) => parsed,
            (Ok(parsed), Some(_)) => Parsed { is_closed: false, ..parsed },
            // A gzip stream that breaks off before the first event, or a folder opened as a file.
            (Err(_), Some(error)) => return Err(Problem::Io(error)),
            (Err(why), None) => return Err(Problem::NotATrace(why)),
        };
        let reading = parsed.events.reading_mut();
        reading.bytes = sent.bytes;
        if !parsed.is_closed {
            reading.truncated_at_byte = Some(sent.bytes);
        }
        let mut trace = parsed.events.into_trace();
        trace.header = parsed.members.into_header();
        link_by_external_ids(&mut trace);
        order::sort(&mut trace);
        Ok(trace)
    })
}

/// Where no work on a device has a `correlation` and the calls are ROCm's, the `External id` is what links the two.
fn link_by_external_ids(trace: &mut Trace) {
    let device = &mut trace.device;
    let is_of_rocm = |at: usize| fragment::is_of_rocm(trace.names.get(trace.host.name[at]).as_bytes());
    let calls = || (0..trace.host.len()).filter(|&at| trace.host.category[at] == Category::Runtime);
    if device.correlation.iter().all(|id| *id == NONE) && calls().any(is_of_rocm) {
        std::mem::swap(&mut device.correlation, &mut device.external);
    }
}

struct Parsed {
    members: Members,
    events: Fragment,
    is_closed: bool,
}

fn parse(blocks: Receiver<Vec<u8>>) -> Result<Parsed, String> {
    let mut members = Members::default();
    let mut head = find_events(&blocks, &mut members)?;
    let mut events = Events::default();
    let blocks_at_once = 2 * rayon::current_num_threads();
    loop {
        let mut batch: Vec<Vec<u8>> = Vec::with_capacity(blocks_at_once);
        batch.extend(head.take());
        while batch.len() < blocks_at_once
            && let Ok(block) = blocks.recv()
        {
            batch.push(block);
        }
        let is_last = batch.len() < blocks_at_once;
        // Parses blocks in parallel, each as if it began at an event; `add` corrects those that do not.
        let fragments: Vec<Fragment> = match events.trailer {
            None => batch.par_iter().map(|block| Fragment::read(block)).collect(),
            Some(_) => batch.iter().map(|_| Fragment::default()).collect(),
        };
        batch.into_iter().zip(fragments).for_each(|(block, fragment)| events.add(block, fragment));
        if is_last {
            break;
        }
    }
    events.finish();
    let is_closed = events.trailer.is_some();
    header::after_events(&events.trailer.unwrap_or_default(), &mut members);
    Ok(Parsed { members, events: events.sum, is_closed })
}

/// The text after the start of the event list, as far as it has been sent. The text before it is parsed again only each
/// time it has doubled, not for every block.
fn find_events(blocks: &Receiver<Vec<u8>>, members: &mut Members) -> Result<Option<Vec<u8>>, String> {
    let mut head: Vec<u8> = Vec::new();
    let mut looked_at = 0;
    loop {
        let block = blocks.recv();
        let is_end = block.is_err();
        head.extend_from_slice(&block.unwrap_or_default());
        if !is_end && head.len() < 2 * looked_at && head.len() <= MOST_BYTES_BESIDE_EVENTS {
            continue;
        }
        looked_at = head.len();
        match header::up_to_events(&head, members) {
            Found::Events(at) => return Ok(Some(head.split_off(at))),
            Found::NoEvents(why) => return Err(why.into()),
            Found::NeedsMore if is_end && head.trim_ascii().is_empty() => return Err("it is empty".into()),
            Found::NeedsMore if is_end => return Err("it ends before its first event".into()),
            Found::NeedsMore if head.len() > MOST_BYTES_BESIDE_EVENTS => {
                return Err("its first 256 MiB hold no event".into());
            }
            Found::NeedsMore => {}
        }
    }
}

/// The folder beside the full traces where `headroom record` puts those of its light profiler.
const LIGHT_FOLDER: &str = "light";

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

const NAMES_SHOWN: usize = 3;

/// The files of `folder` whose names may be traces, sorted by name; and the entries left out, with the reason.
fn trace_files(folder: &Path) -> Result<(Vec<PathBuf>, Vec<String>), ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: folder.to_path_buf(), source };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = file_name(&path);
        if path.is_dir() {
            // The light traces of a recording are read with the traces that name them.
            if name == LIGHT_FOLDER {
                continue;
            }
            folders.push(name);
        } else if name.ends_with(".json") || name.ends_with(".json.gz") {
            files.push(path);
        }
    }
    files.sort();
    folders.sort();
    // A run's folder holds its summaries as JSON beside the trace.
    let named: Vec<PathBuf> =
        files.iter().filter(|path| path.to_string_lossy().contains(".trace.json")).cloned().collect();
    let mut skipped = Vec::new();
    if !named.is_empty() {
        let others: Vec<String> =
            files.iter().filter(|path| !named.contains(path)).map(|path| file_name(path)).collect();
        skipped.extend(few_of(&others).map(|names| format!("{names}: not named .trace.json, unlike others")));
        files = named;
    }
    if files.is_empty() {
        // A folder of recordings is not a folder of ranks.
        let help = match folders.is_empty() {
            true => String::new(),
            false => {
                let some = folders[..folders.len().min(NAMES_SHOWN)].join(", ");
                format!("\n  help: its subfolders are not read; name one, such as {some}")
            }
        };
        return Err(ReadError::EmptyFolder { path: folder.to_path_buf(), help });
    }
    let folders: Vec<String> = folders.iter().map(|name| format!("{name}/")).collect();
    skipped.extend(few_of(&folders).map(|names| format!("{names}: subfolders are not read")));
    Ok((files, skipped))
}

/// The first few names, and how many more there are; `None` where there is no name.
fn few_of(names: &[String]) -> Option<String> {
    let shown = names.get(..NAMES_SHOWN).unwrap_or(names);
    let more = names.len() - shown.len();
    match (shown.is_empty(), more) {
        (true, _) => None,
        (_, 0) => Some(shown.join(", ")),
        (_, more) => Some(format!("{} and {more} more", shown.join(", "))),
    }
}
