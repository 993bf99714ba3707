//! `--watch`: runs again whenever a file that matters changes, until Ctrl-C.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use headroom_sources::discovery;

use super::arguments::Arguments;
use super::once;
use crate::failure;
use crate::output::{self, note};
use crate::signals::{self, Interrupt};

/// The interval between two checks of the files.
const PAUSE: Duration = Duration::from_millis(250);

/// Checking takes at most one part in this many of the time, however many files there are.
const LARGEST_SHARE: u32 = 20;

/// How soon Ctrl-C takes effect.
const BREATH: Duration = Duration::from_millis(25);

/// Clears the screen and moves to its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// A snapshot that differs if a file is added, changed or removed.
type Look = Vec<(PathBuf, Option<SystemTime>, u64)>;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let interrupt = signals::listen(|| {})?;
    let mut seen: Option<Look> = None;
    while !interrupt.is_asked() {
        let start = Instant::now();
        let look = look(arguments);
        let pause = PAUSE.max(start.elapsed() * LARGEST_SHARE);
        if seen.as_ref() != Some(&look) {
            if output::is_seen(&std::io::stdout()) && arguments.output_file.is_none() {
                output::exactly(CLEAR)?;
            }
            if let Err(error) = once(arguments) {
                // The next change may fix it.
                failure::report(&error);
            }
            note(&format!("watching {} files; Ctrl-C stops", look.len()));
            seen = Some(look);
        }
        wait(pause, &interrupt);
    }
    Ok(interrupt.exit_code())
}

fn look(arguments: &Arguments) -> Look {
    let listing = arguments.configurations().and_then(|known| Ok(discovery::list(&arguments.paths, &known)?));
    let Ok(listing) = listing else { return Look::new() };
    let state = |path: PathBuf| {
        let about = std::fs::metadata(&path).ok();
        let length = about.as_ref().map_or(0, std::fs::Metadata::len);
        (path, about.and_then(|about| about.modified().ok()), length)
    };
    listing.watched().map(state).collect()
}

fn wait(pause: Duration, interrupt: &Interrupt) {
    let end = Instant::now() + pause;
    while !interrupt.is_asked() && Instant::now() < end {
        thread::sleep(BREATH);
    }
}
