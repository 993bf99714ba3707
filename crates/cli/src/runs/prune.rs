//! `headroom runs prune`: forgets runs by age, number and size, oldest first, and removes the files they wrote.

use super::delete;
use crate::memory_size::parse_bytes;
use crate::output;
use crate::registry::{Filter, Registry};
use crate::shown::{Plain, Shown};
use anyhow::{Context, ensure};
use headroom_record::registry::{RunRow, RunStatus};
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::bytes as bytes_in_words;
use serde_json::json;
use std::time::{Duration, SystemTime};

#[derive(clap::Args)]
pub struct Arguments {
    /// Runs that began longer ago than this: 30d, 12h, 8w
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,
    /// All but this many of the newest
    #[arg(long, value_name = "COUNT")]
    keep: Option<usize>,
    /// The oldest, until the files of the others take at most this much: 20GB, 500MiB
    #[arg(long, value_name = "SIZE")]
    max_size: Option<String>,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    shown: Shown<Plain>,
}

const UNITS: [(char, u64); 4] = [('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];

fn age(text: &str) -> anyhow::Result<Duration> {
    let not_an_age = || format!("`{text}` is not an age: 30d, 12h, 8w, 90m");
    let unit = text.chars().next_back().with_context(not_an_age)?;
    let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit).with_context(not_an_age)?;
    let count: u64 = text[..text.len() - unit.len_utf8()].parse().ok().with_context(not_an_age)?;
    Ok(Duration::from_secs(count.checked_mul(seconds).with_context(not_an_age)?))
}

/// The reasons to remove a run.
struct Limits {
    /// As the registry writes times, which sort as text.
    begun_before: Option<String>,
    keep: Option<usize>,
    most_bytes: Option<u64>,
}

/// A run and the bytes of its files.
struct Sized<'a> {
    run: &'a RunRow,
    bytes: u64,
}

pub fn run(registry: &Registry, flags: &Arguments) -> anyhow::Result<()> {
    ensure!(
        flags.older_than.is_some() || flags.keep.is_some() || flags.max_size.is_some(),
        "nothing says which runs to remove\n  help: --older-than 30d, --keep 100 or --max-size 20GB; --dry-run shows what they select"
    );
    let before = |age| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let begun_before = flags.older_than.map(|age| utc_iso(before(age)));
    let most_bytes = flags.max_size.as_deref().map(|size| parse_bytes("--max-size", size)).transpose()?;
    let limits = Limits { begun_before, keep: flags.keep, most_bytes: most_bytes.map(|bytes| bytes as u64) };
    let all = registry.list(&Filter::default())?;
    let sized = all.iter().map(|run| Ok(Sized { run, bytes: bytes_of(registry, run)? }));
    let sized = sized.collect::<anyhow::Result<Vec<_>>>()?;
    let chosen = chosen(&sized, &limits);
    let bytes: u64 = chosen.iter().map(|one| one.bytes).sum();
    for one in &chosen {
        let run = one.run;
        let folder = run.start.folder.as_deref().unwrap_or("no folder");
        let what = format!(
            "run {} ({}, {}; {} in {folder})",
            run.id,
            run.start.command,
            run.start.started,
            bytes_in_words(one.bytes)
        );
        match flags.dry_run {
            true => output::note(&format!("{what} would be removed")),
            false => {
                delete::remove_files(registry, run)?;
                registry.delete(run.id)?;
                output::note(&format!("{what} is removed"));
            }
        }
    }
    let kept = all.len() - chosen.len();
    let verb = if flags.dry_run { "would be removed" } else { "removed" };
    if flags.shown.is_json() {
        let ids: Vec<i64> = chosen.iter().map(|one| one.run.id).collect();
        let told = json!({ "dry_run": flags.dry_run, "forgotten": ids, "bytes": bytes, "kept": kept });
        return Ok(output::result(&format!("{told:#}\n"))?);
    }
    let told = format!("{} of {} runs {verb}, {}; {kept} stay\n", chosen.len(), all.len(), bytes_in_words(bytes));
    Ok(output::result(&told)?)
}

/// The bytes that removing the run would free.
fn bytes_of(registry: &Registry, run: &RunRow) -> anyhow::Result<u64> {
    let Some(folder) = delete::folder_of(run) else { return Ok(0) };
    if delete::later_in(registry, run)?.is_some() {
        return Ok(0);
    }
    let places = delete::places(folder)?;
    Ok(places.iter().filter_map(|path| std::fs::symlink_metadata(path).ok()).map(|about| about.len()).sum())
}

/// The runs to remove, oldest first. `runs` are newest first. A run with a name is wanted, and one that runs cannot be
/// removed: both stay, and count.
fn chosen<'a, 'b>(runs: &'b [Sized<'a>], limits: &Limits) -> Vec<&'b Sized<'a>> {
    let stays = |run: &RunRow| run.name.is_some() || run.status == RunStatus::Running;
    let is_due = |(place, one): &(usize, &Sized)| {
        let is_old = limits.begun_before.as_ref().is_some_and(|before| one.run.start.started < *before);
        is_old || limits.keep.is_some_and(|keep| *place >= keep)
    };
    let (mut left, mut chosen): (Vec<&Sized>, Vec<&Sized>) = (vec![], vec![]);
    for (place, one) in runs.iter().enumerate() {
        match !stays(one.run) && is_due(&(place, one)) {
            true => chosen.push(one),
            false => left.push(one),
        }
    }
    let mut bytes: u64 = left.iter().map(|one| one.bytes).sum();
    for one in left.into_iter().rev() {
        if limits.most_bytes.is_some_and(|most| bytes > most) && !stays(one.run) && one.bytes > 0 {
            bytes -= one.bytes;
            chosen.push(one);
        }
    }
    chosen.sort_by_key(|one| one.run.id);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_with_their_unit() {
        let seconds = ["90m", "12h", "30d", "8w", "0d"].map(|text| age(text).unwrap().as_secs());
        assert_eq!(seconds, [5400, 43_200, 2_592_000, 4_838_400, 0]);
        for wrong in
            ["", "d", "30", "-1d", "1.5d", "3y", "30 d", "99999999999999999999d", "18446744073709551615w", "3é"]
        {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
