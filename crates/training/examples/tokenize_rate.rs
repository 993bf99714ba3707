//! Measures how fast a text becomes tokens, from the file to the cached ids, as `train --data TEXT` does it.
//! `tokenize_rate TEXT TOKENIZER.json [threads] [times]`; the figure is the best of several times. A run tokenizes on one
//! thread. More threads tokenize a part of the text each.

use headroom_training::data::{BatchShape, DataSpec, Source, SourceSettings, TokenizerSettings};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string())
        .collect::<Result<_, _>>()
        .map_err(|word| format!("{} is not UTF-8", word.display()))?;
    let [text, tokenizer, rest @ ..] = &arguments[..] else {
        return Err("usage: tokenize_rate TEXT TOKENIZER.json [threads] [times]".into());
    };
    let number = |at: usize, usual: usize| rest.get(at).map_or(Ok(usual), |text| text.parse());
    let (threads, times) = (number(0, 1)?, number(1, 3)?);
    let folder = tempfile::tempdir()?;
    let parts = parts(Path::new(text), threads, folder.path())?;
    let bytes: u64 = parts.iter().map(|part| fs::metadata(part).map(|about| about.len())).sum::<Result<u64, _>>()?;
    let mut best = f64::INFINITY;
    let mut tokens = 0.0;
    for time in 0..times.max(1) {
        let cache = folder.path().join(format!("cache-{time}"));
        let began = Instant::now();
        let counts = thread::scope(|scope| {
            let cache = &cache;
            let one = |part| scope.spawn(move || tokenize(part, Path::new(tokenizer), cache));
            let started: Vec<_> = parts.iter().map(one).collect();
            started
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_string())?)
                .collect::<Result<Vec<f64>, String>>()
        })?;
        best = best.min(began.elapsed().as_secs_f64());
        tokens = counts.iter().sum();
    }
    #[allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
    let show = |line: String| println!("{line}");
    show(format!(
        "{:.2} MB/s, {:.0} tokens/s: {bytes} bytes, {tokens:.0} tokens in {best:.3} s on {threads} threads, best of {times}",
        bytes as f64 / 1e6 / best,
        tokens / best
    ));
    Ok(())
}

/// The number of tokens of a text.
fn tokenize(text: &PathBuf, tokenizer: &Path, cache: &Path) -> Result<f64, String> {
    let tokenizer = TokenizerSettings { path: tokenizer.to_path_buf(), cache: cache.to_path_buf() };
    let settings = SourceSettings {
        tokenizer: Some(tokenizer),
        ..SourceSettings::new(BatchShape { batch_size: 1, seq_len: 1 }, i32::MAX as usize, 0)
    };
    let source = Source::open(&DataSpec::Text { path: text.clone() }, &settings).map_err(|error| error.to_string())?;
    let bytes = fs::metadata(text).map_err(|error| error.to_string())?.len();
    Ok(bytes as f64 / source.bytes_per_token().unwrap_or(1.0))
}

/// The text, cut at ends of lines into a file for each thread.
fn parts(text: &Path, threads: usize, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let bytes = fs::read(text)?;
    let mut files = vec![];
    let mut begin = 0;
    for part in 1..=threads.max(1) {
        let about = bytes.len() * part / threads.max(1);
        let line_end = bytes[about..].iter().position(|byte| *byte == b'\n');
        let end = line_end.map_or(bytes.len(), |at| about + at + 1).max(begin);
        let path = folder.join(format!("part-{part}.txt"));
        fs::write(&path, &bytes[begin..end])?;
        files.push(path);
        begin = end;
    }
    Ok(files)
}
