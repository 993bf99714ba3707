//! `cargo xtask isolation`: scripts that write, delete, detach and try to get out, under each way of isolation.
//!
//! The scripts are files in `xtask/isolation/scripts`. Each runs in a user's tree of its own, which is compared with all
//! that is in it before and after. A control without isolation shows that the scripts do harm.

mod script;
mod server;
mod tree;
mod yard;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::marked::VARIABLE;
use crate::{Outcome, process};
use script::{QUICK, Script, Tag};
use server::Server;
pub use tree::Tree;
use tree::{Aspect, Change};
pub use yard::disk;
use yard::{Done, Ground, Yard, end_left, mark, strays};

/// Who runs the scripts, and which.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only scripts whose names have one of these words, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these ways: overlay, landlock, copy; separated by commas
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// As the ordinary user of this number; takes root, and a Python that this user may run
    #[arg(long, value_name = "NUMBER")]
    user: Option<u32>,
    /// With new namespaces refused, as in a container: overlay must say so and start nothing
    #[arg(long)]
    refused: bool,
    /// The twelve scripts that CI runs
    #[arg(long)]
    quick: bool,
    /// Python for the scripts
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Scripts at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// The settings of CI.
impl Default for Arguments {
    fn default() -> Arguments {
        let (only, ways) = (vec![], vec![]);
        Arguments { only, ways, user: None, refused: false, quick: true, python: "python3".into(), jobs: 2 }
    }
}

/// A way of isolation, or the control without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Unshielded,
    Overlay,
    Landlock,
    Copy,
}

impl Way {
    const SHIELDED: [Way; 3] = [Way::Overlay, Way::Landlock, Way::Copy];

    fn name(self) -> &'static str {
        match self {
            Way::Unshielded => "unshielded",
            Way::Overlay => "overlay",
            Way::Landlock => "landlock",
            Way::Copy => "copy",
        }
    }

    /// Whether the documents leave this change open: it is counted apart. Landlock knows neither modes nor times, and a
    /// copy keeps a script from its folder alone, as long as it does not name that folder by an absolute path.
    fn leaves_open(self, change: &Change, script: &Script) -> bool {
        match self {
            Way::Unshielded => true,
            Way::Overlay => false,
            Way::Landlock => change.aspect == Aspect::About,
            Way::Copy => script.has(Tag::Absolute) || !change.path.starts_with("project"),
        }
    }

    /// Whether files in folders that all users share may stay. Shared memory is a device for Landlock.
    fn leaves_stray(self, path: &Path) -> bool {
        match self {
            Way::Unshielded | Way::Copy => true,
            Way::Overlay => false,
            Way::Landlock => path.starts_with("/dev/shm"),
        }
    }
}

/// The result of one run of a script.
#[derive(Default)]
struct Finding {
    attempts: usize,
    denied: usize,
    /// Changes that the documents leave open.
    open: usize,
    changed: Vec<String>,
    processes: usize,
    folders: Vec<String>,
    /// Other faults, such as a script that says nothing.
    faults: Vec<String>,
}

impl Finding {
    /// All faults in words.
    fn told(&self) -> Vec<String> {
        let changed = self.changed.iter().map(|change| format!("changed {change}"));
        let processes = (self.processes > 0).then(|| format!("{} processes were left running", self.processes));
        let folders = self.folders.iter().map(|name| format!("left {name} among temporary files"));
        changed.chain(processes).chain(folders).chain(self.faults.iter().cloned()).collect()
    }
}

/// Time for the processes of a script that has ended to be gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// A little more than the time after which scripts write later.
const LATER: Duration = Duration::from_millis(3500);
/// The words of an isolation that the system does not allow.
const NOT_ALLOWED: &str = "cannot be kept from your files here";
/// The words before the list of what a copy leaves open.
const LISTED: &str = "nothing keeps the script from writing to";

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let scripts = asked_scripts(arguments)?;
    let ways = asked_ways(arguments)?;
    let headroom = process::build_headroom("dev")?;
    let ground = Ground::new(&headroom, &arguments.python, arguments.user, arguments.refused)?;
    let server = Server::start()?;
    let suite = Suite { ground: &ground, server: &server, is_refused: arguments.refused, next: AtomicUsize::new(0) };
    let (allowed, missing) = suite.allowed(&ways)?;
    let with_control = [Way::Unshielded].into_iter().chain(allowed.iter().copied());
    let all = with_control.flat_map(|way| scripts.iter().map(move |script| (way, script)));
    // A script that acts on the system is never run without isolation, and a search has none.
    let is_run = |(way, script): &(Way, &Script)| {
        *way != Way::Unshielded || !script.has(Tag::System) && !script.has(Tag::Search)
    };
    let cases: Vec<(Way, &Script)> = all.filter(is_run).collect();
    let begin = Instant::now();
    let found = suite.run_all(&cases, arguments.jobs.max(1))?;
    let is_clean = shown(&cases, &found);
    println!("isolation: {} runs of {} scripts in {:.0} s", cases.len(), scripts.len(), begin.elapsed().as_secs_f64());
    for way in &missing {
        println!("isolation: {} is not allowed on this system: SKIPPED", way.name());
    }
    Ok(match (is_clean, allowed.is_empty()) {
        (false, _) => Outcome::Failed,
        (true, true) => Outcome::Skipped,
        (true, false) => Outcome::Passed,
    })
}

fn asked_scripts(arguments: &Arguments) -> Result<Vec<Script>> {
    let mut scripts = Script::all()?;
    if arguments.quick {
        scripts.retain(|script| QUICK.contains(&script.name.as_str()));
    }
    if !arguments.only.is_empty() {
        scripts.retain(|script| arguments.only.iter().any(|word| script.name.contains(word.as_str())));
    }
    if scripts.is_empty() {
        bail!("no script has one of these words in its name: {}", arguments.only.join(", "));
    }
    Ok(scripts)
}

fn asked_ways(arguments: &Arguments) -> Result<Vec<Way>> {
    if arguments.ways.is_empty() {
        return Ok(Way::SHIELDED.to_vec());
    }
    let named = |name: &String| {
        let way = Way::SHIELDED.into_iter().find(|way| way.name() == name);
        way.with_context(|| format!("`{name}` is not a way: choose from overlay, landlock, copy"))
    };
    arguments.ways.iter().map(named).collect()
}

struct Suite<'a> {
    ground: &'a Ground,
    server: &'a Server,
    is_refused: bool,
    /// Numbers of yards and runs.
    next: AtomicUsize,
}

impl Suite<'_> {
    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The ways that this system allows, and the others. Where namespaces are refused, overlay is run to see it refuse.
    fn allowed(&self, ways: &[Way]) -> Result<(Vec<Way>, Vec<Way>)> {
        let mut yard = Yard::new(self.ground, self.number())?;
        yard.before()?;
        let is_allowed = |way: &Way| -> Result<bool> {
            let words = yard.shielded(&["record", "--isolated"], way.name(), &["true".into()]);
            let done = yard.run(&words, &[])?;
            Ok(self.is_refused && *way == Way::Overlay || !done.printed.contains(NOT_ALLOWED))
        };
        let (mut allowed, mut missing) = (vec![], vec![]);
        for way in ways {
            if is_allowed(way)? { allowed.push(*way) } else { missing.push(*way) }
        }
        Ok((allowed, missing))
    }

    fn run_all(&self, cases: &[(Way, &Script)], jobs: usize) -> Result<BTreeMap<usize, Finding>> {
        let (at, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || -> Result<()> {
            let mut yard = Yard::new(self.ground, self.number())?;
            loop {
                let index = at.fetch_add(1, Ordering::Relaxed);
                let Some((way, script)) = cases.get(index) else { return Ok(()) };
                let finding = self
                    .run_one(&mut yard, *way, script)
                    .with_context(|| format!("{} under {} could not be run", script.name, way.name()))?;
                if let Ok(mut found) = found.lock() {
                    found.insert(index, finding);
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(done) => done,
                Err(_) => bail!("a thread of the suite ended early"),
            })
        })?;
        found.into_inner().map_err(|_| anyhow::anyhow!("a thread of the suite ended early"))
    }

    fn run_one(&self, yard: &mut Yard, way: Way, script: &Script) -> Result<Finding> {
        let before = yard.before()?;
        let mark = mark(self.number());
        let done = self.start(yard, way, script, &mark)?;
        let mut finding = Finding::default();
        if way == Way::Unshielded {
            // It may write as it likes, and to the end.
            end_left(&mark, LATER + PATIENCE);
        } else {
            finding.processes = end_left(&mark, PATIENCE);
            if script.has(Tag::Later) {
                std::thread::sleep(LATER);
            }
        }
        let after = yard.after()?;
        let changes = before.changes(&after);
        let (open, changed): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|change| way.leaves_open(change, script));
        let (open_strays, other_strays): (Vec<PathBuf>, Vec<PathBuf>) =
            strays(&mark)?.into_iter().partition(|path| way.leaves_stray(path));
        finding.open = open.len() + open_strays.len();
        finding.changed = changed.iter().map(|change| change.to_string()).collect();
        finding.changed.extend(other_strays.iter().map(|path| path.display().to_string()));
        let folders = yard.left_in_scratch()?;
        if way != Way::Unshielded {
            finding.folders = folders;
        }
        self.judge(way, script, &mark, &done, &mut finding);
        if changes.is_empty() {
            yard.is_unchanged(after);
        }
        Ok(finding)
    }

    fn start(&self, yard: &Yard, way: Way, script: &Script, mark: &str) -> Result<Done> {
        let words = yard.script(&script.name, script.is_shell());
        let (address, torch) = (self.server.address(mark), self.ground.torch());
        let mut variables = vec![(VARIABLE, OsStr::new(mark)), ("SUITE_URL", OsStr::new(&address))];
        let words = match way {
            Way::Unshielded => yard.unshielded(&words),
            way if script.has(Tag::Search) => {
                variables.push(("PYTHONPATH", torch.as_os_str()));
                yard.shielded(&["optimize"], way.name(), &words)
            }
            way => yard.shielded(&["record", "--isolated"], way.name(), &words),
        };
        yard.run(&words, &variables)
    }

    /// Whether the script did what it is for, and the command what it promised.
    fn judge(&self, way: Way, script: &Script, mark: &str, done: &Done, finding: &mut Finding) {
        // A message of `optimize` shows a script's last lines further in.
        let lines = || done.printed.lines().map(str::trim_start);
        finding.attempts = lines().filter(|line| line.starts_with("attempted:")).count();
        finding.denied = lines().filter(|line| line.starts_with("refused:")).count();
        let mut fault = |text: String| finding.faults.push(text);
        let is_silent = finding.attempts + finding.denied == 0;
        if self.is_refused && way == Way::Overlay {
            if !is_silent || !done.printed.contains(NOT_ALLOWED) {
                fault(format!("was started although namespaces are refused: {}", last_line(done)));
            }
            return;
        }
        if is_silent {
            fault(format!("said nothing of an attempt (exit code {:?}): {}", done.code, last_line(done)));
        }
        if way == Way::Unshielded && finding.open == 0 {
            fault("changes nothing without isolation: it does not attempt what it says".into());
        }
        if way == Way::Copy && finding.open > 0 && !done.printed.contains(LISTED) {
            fault("wrote elsewhere, and the command had not listed where it could".into());
        }
        if script.has(Tag::Search) {
            let requests = self.server.requests(mark);
            if requests != 1 || !done.printed.contains("found in the cache: True") {
                fault(format!("the file was fetched {requests} times in one search: {}", last_line(done)));
            }
        }
    }
}

fn last_line(done: &Done) -> &str {
    done.printed.lines().last().unwrap_or_default()
}

/// Prints a row per way and every fault. Returns whether there is none.
fn shown(cases: &[(Way, &Script)], found: &BTreeMap<usize, Finding>) -> bool {
    println!("{:<11} scripts  attempts  denied  changed  left open  processes  folders  other faults", "way");
    let rows: Vec<(Way, &Script, &Finding)> =
        found.iter().filter_map(|(index, finding)| cases.get(*index).map(|case| (case.0, case.1, finding))).collect();
    let mut ways: Vec<Way> = rows.iter().map(|row| row.0).collect();
    ways.sort();
    ways.dedup();
    for way in ways {
        let of_way: Vec<&Finding> = rows.iter().filter(|row| row.0 == way).map(|row| row.2).collect();
        let sum = |figure: fn(&Finding) -> usize| of_way.iter().map(|finding| figure(finding)).sum::<usize>();
        let scripts = |has: fn(&Finding) -> bool| of_way.iter().filter(|finding| has(finding)).count();
        println!(
            "{:<11} {:>7}  {:>8}  {:>6}  {:>7}  {:>9}  {:>9}  {:>7}  {:>12}",
            way.name(),
            of_way.len(),
            sum(|finding| finding.attempts),
            sum(|finding| finding.denied),
            scripts(|finding| !finding.changed.is_empty()),
            scripts(|finding| finding.open > 0),
            sum(|finding| finding.processes),
            sum(|finding| finding.folders.len()),
            sum(|finding| finding.faults.len()),
        );
    }
    let faults: Vec<String> = rows
        .iter()
        .flat_map(|(way, script, finding)| {
            let told = finding.told().into_iter();
            told.map(|fault| format!("fault: {}: {}: {fault}", way.name(), script.name)).collect::<Vec<_>>()
        })
        .collect();
    faults.iter().take(MOST_TOLD).for_each(|fault| println!("{fault}"));
    if faults.len() > MOST_TOLD {
        println!("and {} more faults", faults.len() - MOST_TOLD);
    }
    faults.is_empty()
}

/// A script that reaches a tree changes thousands of files.
const MOST_TOLD: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_leaves_open_what_the_documents_say_and_nothing_else() {
        let scripts = Script::all().unwrap();
        let script = |name: &str| scripts.iter().find(|script| script.name == name).unwrap();
        let (near, far) = (script("append.sh"), script("path_from_variable.py"));
        let change = |path: &str, aspect| Change { path: path.into(), aspect };
        let content = change("project/small.txt", Aspect::Content);
        let mode = change("sibling/a.txt", Aspect::About);
        let beside = change("sibling/a.txt", Aspect::Content);
        let open = |way: Way, script| [&content, &mode, &beside].map(|change| way.leaves_open(change, script));
        assert_eq!(open(Way::Overlay, far), [false, false, false]);
        assert_eq!(open(Way::Landlock, far), [false, true, false]);
        assert_eq!(open(Way::Copy, near), [false, true, true]);
        assert_eq!(open(Way::Copy, far), [true, true, true]);
        let stray = |way: Way| [way.leaves_stray(Path::new("/dev/shm/a")), way.leaves_stray(Path::new("/tmp/a"))];
        assert_eq!([stray(Way::Overlay), stray(Way::Landlock)], [[false, false], [true, false]]);
    }
}
