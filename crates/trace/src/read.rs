//! Reading traces: a file, plain or gz, or a folder with one file a rank.

mod event;
mod fragment;
mod header;
mod json;
mod order;
mod text;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rayon::prelude::*;
use thiserror::Error;

use crate::trace::Trace;
use fragment::{End, Fragment};
use header::{Found, Members};

#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{} is no profiler trace: {why}\n  help: give a Kineto or Chrome trace (.json, .json.gz), or a folder of them",
        path.display()
    )]
    NotATrace { path: PathBuf, why: String },
    #[error("{} holds no trace: no file in it ends in .json or .json.gz", path.display())]
    EmptyFolder { path: PathBuf },
}

/// The traces at `path`: one of a file, one a rank of a folder, in the order of their ranks.
pub fn read(path: &Path) -> Result<Vec<Trace>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let files = trace_files(path)?;
    let mut traces = Vec::new();
    let mut first_refusal = None;
    for file in &files {
        match read_file(file) {
            Ok(trace) => traces.push(trace),
            // Other JSON may lie beside the traces.
            Err(error @ ReadError::NotATrace { .. }) => first_refusal = first_refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match first_refusal {
        Some(error) if traces.is_empty() => Err(error),
        _ => {
            traces.sort_by_key(Trace::rank);
            Ok(traces)
        }
    }
}

/// The trace in one file.
pub fn read_file(path: &Path) -> Result<Trace, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(unreadable)?;
    let source = text::open(file).map_err(unreadable)?;
    let mut trace = read_text(source).map_err(|problem| match problem {
        Problem::Io(source) => unreadable(source),
        Problem::NotATrace(why) => ReadError::NotATrace { path: path.to_path_buf(), why },
    })?;
    trace.name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(trace)
}

/// The trace in `bytes`, plain text.
pub fn read_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
    read_text(bytes).map_err(|problem| match problem {
        Problem::Io(source) => ReadError::Unreadable { path: "memory".into(), source },
        Problem::NotATrace(why) => ReadError::NotATrace { path: "memory".into(), why },
    })
}

enum Problem {
    Io(io::Error),
    NotATrace(String),
}

/// One thread fetches (and unpacks) the text, the others turn it into columns.
fn read_text(source: impl io::Read + Send) -> Result<Trace, Problem> {
    thread::scope(|scope| {
        let (sender, blocks) = sync_channel(4);
        let fetching = scope.spawn(move || text::send_blocks(source, &sender));
        let parsed = parse(blocks);
        let sent = fetching.join().unwrap_or_default();
        let mut parsed = match (parsed, &sent.broke_off) {
            (Ok(parsed), _) => parsed,
            // A gz that breaks off before the first event, or a folder opened as a file.
            (Err(_), Some(error)) => return Err(Problem::Io(io::Error::new(error.kind(), error.to_string()))),
            (Err(why), None) => return Err(Problem::NotATrace(why)),
        };
        let reading = parsed.events.reading_mut();
        reading.bytes = sent.bytes;
        if !parsed.is_closed || sent.broke_off.is_some() {
            reading.truncated_at_byte = Some(sent.bytes);
        }
        let mut trace = parsed.events.into_trace();
        trace.header = parsed.members.into_header();
        order::sort(&mut trace);
        Ok(trace)
    })
}

struct Parsed {
    members: Members,
    events: Fragment,
    is_closed: bool,
}

/// More than any header or trailer holds.
const MOST_BYTES_BESIDE_EVENTS: usize = 256 << 20;

/// More than any one event holds: what seems larger is damage.
const LARGEST_EVENT_BYTES: usize = 16 << 20;

fn parse(blocks: Receiver<Vec<u8>>) -> Result<Parsed, String> {
    let mut members = Members::default();
    let mut head: Vec<u8> = Vec::new();
    let start = loop {
        let Ok(block) = blocks.recv() else {
            let why = if head.trim_ascii().is_empty() { "it is empty" } else { "it ends before its first event" };
            return Err(why.into());
        };
        head.extend_from_slice(&block);
        match header::up_to_events(&head, &mut members) {
            Found::Events(at) => break at,
            Found::NoEvents(why) => return Err(why.into()),
            Found::NeedsMore if head.len() > MOST_BYTES_BESIDE_EVENTS => {
                return Err("its first 256 MiB hold no event".into());
            }
            Found::NeedsMore => {}
        }
    };
    let mut events = Fragment::default();
    // What of the text before the next block is not read yet: an event that was cut.
    let mut carried = head.split_off(start);
    let mut trailer: Option<Vec<u8>> = None;
    let blocks_at_once = 2 * rayon::current_num_threads();
    loop {
        let mut batch: Vec<Vec<u8>> = Vec::with_capacity(blocks_at_once);
        if !carried.is_empty() {
            batch.push(std::mem::take(&mut carried));
        }
        while batch.len() < blocks_at_once
            && let Ok(block) = blocks.recv()
        {
            batch.push(block);
        }
        let last = batch.len() < blocks_at_once;
        add_batch(&mut events, batch, &mut carried, &mut trailer);
        if !carried.is_empty() && (last || carried.len() > LARGEST_EVENT_BYTES) {
            go_on_after_damage(&mut events, &mut carried, &mut trailer);
        }
        if last {
            break;
        }
    }
    let is_closed = trailer.is_some();
    header::after_events(&trailer.unwrap_or_default(), &mut members);
    Ok(Parsed { members, events, is_closed })
}

/// Reads the blocks side by side, each as if it began at an event, then takes them in order. Where one turns out to end
/// within an event, its rest is glued to the next block, which is read again.
fn add_batch(events: &mut Fragment, batch: Vec<Vec<u8>>, carried: &mut Vec<u8>, trailer: &mut Option<Vec<u8>>) {
    if let Some(trailer) = trailer {
        for block in batch {
            if trailer.len() < MOST_BYTES_BESIDE_EVENTS {
                trailer.extend_from_slice(&block);
            }
        }
        return;
    }
    let fragments: Vec<Fragment> = batch.par_iter().map(|block| Fragment::read(block)).collect();
    let mut rest: Vec<u8> = Vec::new();
    for (mut block, mut fragment) in batch.into_iter().zip(fragments) {
        if let Some(trailer) = trailer {
            trailer.extend_from_slice(&block);
            continue;
        }
        if !rest.is_empty() {
            rest.extend_from_slice(&block);
            block = std::mem::take(&mut rest);
            fragment = Fragment::read(&block);
        }
        let end = fragment.end();
        events.append(fragment);
        match end {
            End::Between => {}
            End::Closed(at) => *trailer = Some(block.split_off(at)),
            End::Within(at) => rest = block.split_off(at),
        }
    }
    *carried = rest;
}

/// `carried` starts with an event that does not end: reads on from the next place where one may begin. Nothing is done
/// where there is no such place: then the text was cut there.
fn go_on_after_damage(events: &mut Fragment, carried: &mut Vec<u8>, trailer: &mut Option<Vec<u8>>) {
    while let Some(next) = event::next_candidate(carried, 1) {
        let text = carried.split_off(next);
        let fragment = Fragment::read(&text);
        let end = fragment.end();
        events.append(fragment);
        events.reading_mut().damaged_events += 1;
        carried.clear();
        match end {
            End::Between => break,
            End::Closed(at) => {
                *trailer = Some(text[at..].to_vec());
                break;
            }
            End::Within(at) => *carried = text[at..].to_vec(),
        }
    }
}

/// The files of `folder` that by their name may be traces, in order of name.
fn trace_files(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: folder.to_path_buf(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_file() && (name.ends_with(".json") || name.ends_with(".json.gz")) {
            files.push(path);
        }
    }
    files.sort();
    // A run's folder holds its summaries as JSON beside the trace.
    let named: Vec<PathBuf> =
        files.iter().filter(|path| path.to_string_lossy().contains(".trace.json")).cloned().collect();
    let files = if named.is_empty() { files } else { named };
    if files.is_empty() {
        return Err(ReadError::EmptyFolder { path: folder.to_path_buf() });
    }
    Ok(files)
}
