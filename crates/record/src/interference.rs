//! How much of a measurement other programs took: time that threads were ready to run and waited for a core, and time
//! that the hypervisor gave to other machines.

use crate::reading;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

/// Where the measured work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// In this process: the waits of its own threads count.
    Here,
    /// In another process: the waits of any thread of the machine count.
    Elsewhere,
}

/// Watches one measurement.
pub struct InterferenceWatch {
    work: Work,
    started: Instant,
    before: Option<Counters>,
}

/// Seconds since the counters began.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    /// Sum over this process's threads, or the time in which any thread of the machine waited.
    waited: f64,
    /// Sum over the processors on which the work may run.
    stolen: f64,
}

impl InterferenceWatch {
    pub fn start(work: Work) -> InterferenceWatch {
        InterferenceWatch { work, before: Counters::read(work), started: Instant::now() }
    }

    /// Lost seconds as a share of the time since the start; `None` where the system does not count them.
    pub fn share(&self) -> Option<f64> {
        let elapsed = self.started.elapsed().as_secs_f64();
        let (before, now) = (self.before?, Counters::read(self.work)?);
        // A thread that ended took its counter with it.
        let waited = (now.waited - before.waited).max(0.0);
        let stolen = (now.stolen - before.stolen).max(0.0);
        Some((waited + stolen) / elapsed.max(f64::MIN_POSITIVE))
    }
}

impl Counters {
    fn read(work: Work) -> Option<Counters> {
        let waited: f64 = match work {
            Work::Here => fs::read_dir("/proc/self/task")
                .ok()?
                .filter_map(|thread| waited_seconds(&counters(&thread.ok()?.path().join("schedstat"))?))
                .sum(),
            Work::Elsewhere => pressure_seconds(&counters(Path::new("/proc/pressure/cpu"))?)?,
        };
        // A thread that has run has waited for at least some nanoseconds: zero means that nobody counts.
        (waited > 0.0).then_some(())?;
        let allowed = match work {
            Work::Here => allowed_processors(&counters(Path::new("/proc/self/status"))?)?,
            // The other process may be pinned to any.
            Work::Elsewhere => vec![0..=u32::MAX],
        };
        Some(Counters { waited, stolen: stolen_seconds(&counters(Path::new("/proc/stat"))?, &allowed)? })
    }
}

/// The text of one of the system's files; its counters of interrupts grow with the machine.
fn counters(path: &Path) -> Option<String> {
    const MOST_BYTES: u64 = 1 << 20;
    reading::read_text(path, MOST_BYTES).ok()
}

/// The second figure of `schedstat`: nanoseconds on a run queue.
fn waited_seconds(schedstat: &str) -> Option<f64> {
    Some(schedstat.split_whitespace().nth(1)?.parse::<u64>().ok()? as f64 * 1e-9)
}

/// The total of the line `some`, in microseconds.
fn pressure_seconds(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    Some(total.parse::<u64>().ok()? as f64 * 1e-6)
}

/// The processors of a process's own mask, such as `0-3,8`.
fn allowed_processors(status: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(range).collect()
}

/// The eighth figure of the lines of these processors, in ticks of a hundredth of a second.
fn stolen_seconds(stat: &str, processors: &[RangeInclusive<u32>]) -> Option<f64> {
    let mut ticks = None;
    for line in stat.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        // The first line, the sum of all, has no number.
        let Some(number) = words.next().filter(|_| !line.starts_with(' ')).and_then(|word| word.parse::<u32>().ok())
        else {
            continue;
        };
        if processors.iter().any(|range| range.contains(&number)) {
            *ticks.get_or_insert(0) += words.nth(7)?.parse::<u64>().ok()?;
        }
    }
    ticks.map(|ticks| ticks as f64 * 1e-2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_stolen_ticks_are_read_in_seconds() {
        assert_eq!(waited_seconds("120000 2500000000 7\n"), Some(2.5));
        assert_eq!(waited_seconds(""), None);
        let stat = "cpu  0 0 0 0 0 0 0 950 9 10\ncpu0 1 2 3 4 5 6 7 250 9 10\ncpu1 0 0 0 0 0 0 0 100\ncpu12 0 0 0 0 0 0 0 600\nintr 5\n";
        let [first, some, none] = ["0", "0-1,12", "7"]
            .map(|list| allowed_processors(&format!("Cpus_allowed:\tf\nCpus_allowed_list:\t{list}\n")).unwrap());
        assert_eq!([stolen_seconds(stat, &first), stolen_seconds(stat, &some)], [Some(2.5), Some(9.5)]);
        assert_eq!([stolen_seconds(stat, &none), stolen_seconds("cpu0 1 2 3\n", &first)], [None, None]);
        assert_eq!(allowed_processors("Cpus_allowed_list:\tx\n"), None);
        assert_eq!(pressure_seconds("some avg10=0.10 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n"), Some(2.5));
        assert_eq!(pressure_seconds("full avg10=0.00 total=5\n"), None);
    }

    #[test]
    fn more_threads_than_cores_wait_for_each_other() {
        let Some(_) = Counters::read(Work::Here) else {
            println!("skipped: this system does not count the time on run queues");
            return;
        };
        let spin = |seconds: f64| {
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < seconds {
                std::hint::spin_loop();
            }
        };
        let threads = 3 * std::thread::available_parallelism().map_or(1, usize::from);
        let watch = InterferenceWatch::start(Work::Here);
        let crowded = std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(|| spin(0.3))));
            spin(0.2);
            // Threads that have ended are not counted, so ask before they do.
            watch.share()
        });
        assert!(crowded.unwrap() > 0.5, "{crowded:?}");
    }
}
