//! Where a recorded script runs: as it would alone, or shielded from the user's files.

use crate::isolation::IsolationArguments;
use crate::output;
use crate::signals::Interrupt;
use anyhow::{Context, Result, bail};
use headroom_scripts::isolation::{self, Home, Isolation, end_all, lead_a_group};
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

/// Interval between checks on the script.
const GLANCE: Duration = Duration::from_millis(20);

/// The flags that shield a script.
pub struct Asked {
    pub stop: bool,
    pub isolated: bool,
}

/// Where the script runs: as it would alone, or shielded from the user's files.
pub enum Shield {
    /// A real run, with a folder for the hook and its notes.
    Without(Home),
    With(Box<Isolation>, isolation::Place),
}

impl Shield {
    pub fn new(asked: &Asked, options: &IsolationArguments, folder: &Path) -> Result<Shield> {
        if !asked.stop && !asked.isolated {
            if !options.allow_write.is_empty() || options.isolation.is_some() {
                bail!("--allow-write and --isolation say how a script is shielded\n  help: add --isolated or --stop");
            }
            return Ok(Shield::Without(Home::new(&std::env::temp_dir())?));
        }
        let here = std::env::current_dir().context("cannot find the working folder")?;
        let isolation = Isolation::begin(&here, &[folder.to_path_buf()], &options.into())?;
        isolation.remarks.iter().for_each(|remark| output::note(remark));
        if asked.stop && !asked.isolated && options.allow_write.is_empty() {
            output::note("with --stop the script's own results are dropped: --allow-write PATH keeps those in PATH");
        }
        let place = isolation.place(&[])?;
        Ok(Shield::With(Box::new(isolation), place))
    }

    pub fn is_there(&self) -> bool {
        matches!(self, Shield::With(..))
    }

    pub fn hooks(&self) -> PathBuf {
        match self {
            Shield::Without(home) => home.path().join("hook"),
            Shield::With(isolation, _) => isolation.hook(),
        }
    }

    pub fn notes(&self) -> PathBuf {
        match self {
            Shield::Without(home) => home.path().join("notes"),
            Shield::With(_, place) => place.aside().join("notes"),
        }
    }

    pub fn command(&self, words: &[OsString]) -> Result<Command> {
        match self {
            Shield::Without(home) => Ok(isolation::unshielded(home, words)?),
            Shield::With(isolation, place) => {
                let mut command = isolation.command(place, words)?;
                lead_a_group(&mut command);
                if std::io::stdin().is_terminal() {
                    // A group in the background may not read from a terminal.
                    command.stdin(Stdio::null());
                }
                Ok(command)
            }
        }
    }

    pub fn ended(&self, status: ExitStatus) -> Result<ExitStatus> {
        match self {
            Shield::Without(home) => Ok(isolation::unshielded_ended(home, status)?),
            Shield::With(_, place) => Ok(place.ended(status)?),
        }
    }

    /// States what holds for the user's files, if the script was shielded.
    pub fn claim(&self) -> Option<String> {
        match self {
            Shield::Without(_) => None,
            Shield::With(isolation, _) => Some(isolation.claim()),
        }
    }

    /// A sentence about a file that was changed although the script was shielded.
    pub fn warning(&self) -> Option<String> {
        match self {
            Shield::Without(_) => None,
            Shield::With(isolation, _) => isolation.warning(),
        }
    }

    /// Waits for the script and forwards requests to stop, so that no process started here is left running.
    pub fn wait(&self, child: &mut Child, interrupt: &Interrupt) -> Result<ExitStatus> {
        let mut told = false;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the script")? {
                return Ok(status);
            }
            // Ctrl-C on a terminal also reaches a real run, and forwarding it would interrupt the script twice.
            let is_known = matches!(self, Shield::Without(_)) && interrupt.signal() == SIGINT;
            let due = !is_known || interrupt.give_up.load(Ordering::Relaxed);
            if interrupt.is_asked() && due && !told {
                told = true;
                self.send(child, interrupt.signal());
            }
            if interrupt.is_asked_twice() {
                end_all(child);
            }
            sleep(GLANCE);
        }
    }

    /// Asks the script to end; a hangup is a request to terminate. One that has already ended needs no signal.
    #[cfg(unix)]
    fn send(&self, child: &mut Child, signal: i32) {
        use rustix::process::{Pid, Signal, kill_process, kill_process_group};
        let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
        let signal = if signal == SIGINT { Signal::INT } else { Signal::TERM };
        let _ = match self {
            // The launcher hands it on to the script alone.
            Shield::Without(_) => kill_process(process, isolation::request(signal)),
            Shield::With(..) => kill_process_group(process, signal),
        };
    }

    /// Kills the script: other systems have no such request.
    #[cfg(not(unix))]
    fn send(&self, child: &mut Child, _signal: i32) {
        let _ = child.kill();
    }
}
