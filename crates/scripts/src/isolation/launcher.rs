//! The program starting itself: `headroom isolated outside|inside ORDER -- COMMAND…`, with a single thread.
//!
//! The first process stays outside. It ends the script when the command that ordered it is gone, whatever the script has
//! started or detached. The second one is inside: under layers it is the first process of its namespace, whose end is the
//! end of all others; otherwise it gives up the right to write, and becomes the script.

use super::layers::{self, Mounter};
use super::spec::{Means, Report, Spec};
use super::tree::{end_descendants, signal_descendants};
use headroom_engine::machine::isolation::{Namespaces, deny_writing_except, leave_for};
use headroom_record::reading;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, geteuid, getgid, getpid, getppid, getuid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use rustix::thread::{
    CapabilitySet, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// The first word of the launcher's command line.
pub const WORD: &str = "isolated";
const OUTSIDE: &str = "outside";
const INSIDE: &str = "inside";
const PROBE: &str = "probe";

/// Interval between looks at the script and at the command that ordered it.
const GLANCE: Duration = Duration::from_millis(20);
/// A real run is asked to end, and has this long to save.
const GRACE: Duration = Duration::from_secs(5);
/// Time for killed processes to be gone.
const ENDING: Duration = Duration::from_secs(10);
/// The launcher's own exit code when there is no script to take one from.
const NO_SCRIPT: u8 = 70;

/// Rights of root that lead out of the layers: mounting, raw devices, files by number, the kernel itself.
const TAKEN_FROM_ROOT: [CapabilitySet; 6] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::MKNOD,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_BOOT,
];

/// Runs the launcher if this process was started as one; `None` for any other command line.
pub fn launched(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if words.nth(1)? != WORD {
        return None;
    }
    let stage = words.next()?;
    let order = PathBuf::from(words.next()?);
    let command: Vec<OsString> = words.skip(1).collect();
    if stage == PROBE {
        return Some(probe(order.as_os_str(), &command));
    }
    let spec: Spec = serde_json::from_slice(&reading::read(&order, reading::RECORD).ok()?).ok()?;
    let report = |report: &Report| {
        // Without an answer, the command takes the launcher's own end for the script's.
        let _ = fs::write(&spec.report, serde_json::to_vec(report).unwrap_or_default());
        ExitCode::from(NO_SCRIPT)
    };
    let done = if stage == OUTSIDE { outside(&spec, &order, &command) } else { inside(&spec, &command) };
    Some(done.unwrap_or_else(|error| report(&error)))
}

/// The command line that starts this program as a launcher.
pub fn command(order: &Path, words: &[OsString]) -> Command {
    staged(OUTSIDE, order, words)
}

/// The words of a command that tries to write a file of this name into folders, and prints where it could.
pub fn probing(name: &str, folders: &[PathBuf]) -> Vec<OsString> {
    let words = ["/proc/self/exe", WORD, PROBE, name, "--"].map(OsString::from);
    words.into_iter().chain(folders.iter().map(|folder| folder.clone().into_os_string())).collect()
}

fn staged(stage: &str, order: &Path, words: &[OsString]) -> Command {
    // Also where the program's file was replaced since it was started.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("headroom").args([WORD, stage]).arg(order).arg("--").args(words);
    command
}

/// Answers the command that probes on standard output.
fn probe(name: &OsStr, folders: &[OsString]) -> ExitCode {
    for folder in folders {
        let wrote = fs::write(Path::new(folder).join(name), "written inside");
        // A command that is gone needs no answer.
        let _ = writeln!(io::stdout(), "{}", if wrote.is_ok() { "written" } else { "refused" });
    }
    ExitCode::SUCCESS
}

/// Requests that are noticed without ending this process. A handler is gone in the script, where an ignored signal would
/// stay ignored.
struct Requests {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
}

impl Requests {
    fn listen() -> io::Result<Requests> {
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        let requests = Requests { interrupt: Arc::default(), terminate: Arc::default() };
        signal_hook::flag::register(SIGUSR1, Arc::clone(&requests.interrupt))?;
        signal_hook::flag::register(SIGUSR2, Arc::clone(&requests.terminate))?;
        Ok(requests)
    }

    /// Hands on to the script what the command asked for, and what a terminal did not send to the script itself.
    fn hand_on(&self, script: Pid) {
        for (request, signal) in [(&self.interrupt, Signal::INT), (&self.terminate, Signal::TERM)] {
            if request.swap(false, Ordering::Relaxed) {
                let _ = kill_process(script, signal);
            }
        }
    }
}

fn outside(spec: &Spec, order: &Path, words: &[OsString]) -> Result<ExitCode, Report> {
    let failed = |what: &'static str| move |error: io::Error| Report::Refused(format!("cannot {what}: {error}"));
    let requests = Requests::listen().map_err(failed("listen for signals"))?;
    let is_layered = matches!(spec.means, Means::Layers(_));
    if is_layered {
        enter_namespaces()?;
        end_with_parent(Signal::KILL);
    } else {
        // Whatever is detached becomes a child of this process.
        set_child_subreaper(Some(getpid())).map_err(|error| failed("adopt detached processes")(error.into()))?;
    }
    if !is_alive(spec.command) {
        return Err(Report::NotStarted("the command that ordered it is gone".into()));
    }
    let started = staged(INSIDE, order, words).spawn().map_err(failed("start the program itself"))?;
    let script = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
    let script = script.ok_or_else(|| Report::NotStarted("its process has no number".into()))?;
    if is_layered {
        // The process inside reports. This one is killed with the command, and takes the namespace with it.
        return Ok(wait_for(script).map_or(ExitCode::from(NO_SCRIPT), code_of));
    }
    let is_real = matches!(spec.means, Means::Nothing);
    loop {
        requests.hand_on(script);
        if let Some(status) = ended(script) {
            if !is_real {
                end_descendants(std::process::id(), ENDING);
            }
            // A process inside that could not become the script has said so.
            if status.exit_status() != Some(i32::from(NO_SCRIPT)) || !spec.report.exists() {
                tell(spec, status, vec![]);
            }
            return Ok(code_of(status));
        }
        if !is_alive(spec.command) {
            if is_real {
                signal_descendants(std::process::id(), Signal::TERM);
                let begin = std::time::Instant::now();
                while ended(script).is_none() && begin.elapsed() < GRACE {
                    sleep(GLANCE);
                }
            }
            end_descendants(std::process::id(), ENDING);
            return Ok(ExitCode::from(NO_SCRIPT));
        }
        sleep(GLANCE);
    }
}

fn inside(spec: &Spec, words: &[OsString]) -> Result<ExitCode, Report> {
    end_with_parent(if matches!(spec.means, Means::Nothing) { Signal::TERM } else { Signal::KILL });
    let Some((program, arguments)) = words.split_first() else {
        return Err(Report::NotStarted("the command is empty".into()));
    };
    let refused = |error: &dyn std::fmt::Display| Report::Refused(error.to_string());
    let not_started = |error: io::Error| Report::NotStarted(error.to_string());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.folder);
    let layers = match &spec.means {
        Means::Layers(layers) => layers,
        Means::Landlock { writable } => {
            deny_writing_except(writable).map_err(|error| refused(&format!("Landlock: {error}")))?;
            return Err(not_started(command.exec()));
        }
        Means::Nothing | Means::Copy => return Err(not_started(command.exec())),
    };
    // Opened before the old root is gone.
    let mut report = File::create(&spec.report).map_err(|error| refused(&error))?;
    let mut answer = |answer: &Report| {
        let _ = serde_json::to_vec(answer).map(|bytes| report.write_all(&bytes));
    };
    let mounter = if is_in_initial_user_namespace() { Mounter::Root } else { Mounter::UserNamespace };
    let remarks = match layers::enter(layers, mounter) {
        Ok(remarks) => remarks,
        Err(error) => {
            answer(&refused(&error));
            return Ok(ExitCode::from(NO_SCRIPT));
        }
    };
    give_up_rights();
    let script = match command.spawn() {
        Ok(script) => i32::try_from(script.id()).ok().and_then(Pid::from_raw),
        Err(error) => {
            answer(&not_started(error));
            return Ok(ExitCode::from(NO_SCRIPT));
        }
    };
    let Some(status) = script.and_then(wait_for) else { return Ok(ExitCode::from(NO_SCRIPT)) };
    answer(&Report::Ended { status: status.as_raw(), remarks });
    // With this process, the first of its namespace, all others end.
    Ok(code_of(status))
}

/// Leaves the namespaces of mounts and processes; where that takes a user namespace, with one in which this user is
/// himself.
fn enter_namespaces() -> Result<(), Report> {
    let refused = |what: &str, error: io::Error| Report::Refused(format!("cannot {what}: {error}"));
    if geteuid().is_root() && leave_for(Namespaces::MountsAndProcesses).is_ok() {
        return Ok(());
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    leave_for(Namespaces::UserToo).map_err(|error| refused("make a user namespace", error))?;
    let write = |name: &str, text: String| {
        fs::write(format!("/proc/self/{name}"), text).map_err(|error| refused(&format!("write {name}"), error))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))?;
    // The rights in the new namespace would be lost when the program starts itself.
    let kept = capabilities(None).and_then(|mut sets| {
        sets.inheritable = sets.permitted;
        set_capabilities(None, sets)?;
        for right in sets.permitted.iter() {
            configure_capability_in_ambient_set(right, true)?;
        }
        Ok(())
    });
    kept.map_err(|error| refused("keep rights in the user namespace", error.into()))
}

/// Whether this user namespace is the first one: it maps every user to himself.
fn is_in_initial_user_namespace() -> bool {
    let map = reading::read_text(Path::new("/proc/self/uid_map"), reading::SETTINGS).unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Rights that the mounts took, and those of root that would lead out of the layers.
fn give_up_rights() {
    let _ = clear_ambient_capability_set();
    for right in TAKEN_FROM_ROOT {
        // Whoever does not have it, as an ordinary user, has nothing to give up.
        let _ = remove_capability_from_bounding_set(right);
    }
    if let Ok(mut sets) = capabilities(None) {
        sets.inheritable = CapabilitySet::empty();
        let _ = set_capabilities(None, sets);
    }
}

fn end_with_parent(signal: Signal) {
    // Where this fails, the script still ends with a command that has time to end it.
    let _ = set_parent_process_death_signal(Some(signal));
}

/// Whether the command still is the process that started this one.
fn is_alive(command: u32) -> bool {
    getppid().is_some_and(|parent| u32::try_from(parent.as_raw_nonzero().get()) == Ok(command))
}

/// Waits for the script, and meanwhile for every process that was left to this one.
fn wait_for(script: Pid) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) if process == script => return Some(status),
            Err(Errno::CHILD) => return None,
            _ => {}
        }
    }
}

/// The script's end, if it has ended; others that have ended are forgotten.
fn ended(script: Pid) -> Option<WaitStatus> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) if process == script => return Some(status),
            Ok(Some(_)) => {}
            _ => return None,
        }
    }
}

fn tell(spec: &Spec, status: WaitStatus, remarks: Vec<String>) {
    let report = Report::Ended { status: status.as_raw(), remarks };
    let _ = serde_json::to_vec(&report).map(|bytes| fs::write(&spec.report, bytes));
}

/// The code that a shell would give it.
fn code_of(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_SCRIPT))
}
