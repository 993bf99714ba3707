//! A folder in which a command is run and killed, with its own home.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::isolation::disk;
use crate::marked;
use crate::process::workspace_root;

/// Time for everything to end after a kill.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Place {
    folder: PathBuf,
    programs: Programs,
    /// The mark of all processes that are started here.
    mark: String,
    /// The folder in which the command runs, relative to this one.
    working: &'static str,
}

/// Programs that commands need.
#[derive(Clone)]
pub struct Programs {
    pub headroom: PathBuf,
    /// Python with PyTorch.
    pub torch: Option<PathBuf>,
    /// Open MPI's launcher.
    pub mpirun: Option<PathBuf>,
}

/// The processes that a kill strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Struck {
    /// The command alone.
    Command,
    /// The command's process group.
    Group,
    /// The youngest of the processes that it has started, or the command where there is none yet.
    Youngest,
}

pub enum Ending {
    Killed,
    /// Exit code and standard error of a run that ended before the kill.
    Ended(i32, String),
    /// One of its processes was killed, and the others did not end.
    Hung,
}

impl Place {
    /// A new folder; `working` is made in it.
    pub fn new(programs: &Programs, working: &'static str) -> Result<Place> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("kills-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = disk().join(format!("headroom-{mark}"));
        for made in ["scratch", working] {
            let made = folder.join(made);
            fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
        }
        Ok(Place { folder, programs: programs.clone(), mark, working })
    }

    /// Python with PyTorch, as a word of a command line.
    pub fn torch(&self) -> String {
        self.programs.torch.as_ref().map_or_else(|| "python3".into(), |python| python.display().to_string())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path(name), text).with_context(|| format!("cannot write {name}"))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_dir_all(self.path(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {name}"))
            }
            _ => Ok(()),
        }
    }

    pub fn json(&self, name: &str) -> Result<Value> {
        let bytes = fs::read(self.path(name)).with_context(|| format!("cannot read {name}"))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{name} is not whole"))
    }

    /// The arguments are split at spaces. A line that begins with `mpirun` is the launcher's, up to `headroom`.
    fn command(&self, line: &str) -> Command {
        let (launcher, line) = match line.strip_prefix("mpirun ").and_then(|rest| rest.split_once(" headroom ")) {
            Some((options, rest)) => (Some(options), rest),
            None => (None, line),
        };
        let mut command = match launcher.zip(self.programs.mpirun.as_ref()) {
            Some((options, mpirun)) => {
                let mut command = Command::new(mpirun);
                command.args(options.split_whitespace()).arg(&self.programs.headroom);
                // The library is searched for beside the launcher.
                let own = mpirun.parent().map(Path::to_path_buf);
                let path = std::env::var_os("PATH").unwrap_or_default();
                if let Ok(path) = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path))) {
                    command.env("PATH", path);
                }
                command
            }
            None => Command::new(&self.programs.headroom),
        };
        command.args(line.split_whitespace()).current_dir(self.path(self.working));
        command.env("HEADROOM_HOME", self.path("home")).env("TMPDIR", self.path("scratch"));
        if self.programs.torch.is_none() {
            command.env("PYTHONPATH", workspace_root().join("crates/cli/tests/data/fake_torch"));
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1").env(marked::VARIABLE, &self.mark);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub fn run_to_its_end(&self, line: &str) -> Result<(i32, String)> {
        let output = self.command(line).stderr(Stdio::piped()).output().context("cannot start headroom")?;
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).trim().to_string()))
    }

    /// Returns the output of `headroom`, which must be one JSON document.
    pub fn prints_json(&self, line: &str) -> Result<Value> {
        let output = self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        if !output.status.success() {
            bail!("`headroom {line}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("`headroom {line}` printed something else"))
    }

    pub fn run_and_kill(&self, line: &str, after: Duration, struck: Struck) -> Result<Ending> {
        let errors = self.path("stderr.log");
        let mut command = self.command(line);
        command.stderr(fs::File::create(&errors)?).process_group(0);
        let begin = Instant::now();
        let mut child = command.spawn().context("cannot start headroom")?;
        while begin.elapsed() < after {
            if let Some(status) = child.try_wait()? {
                let text = fs::read(&errors).unwrap_or_default();
                let code = status.code().unwrap_or(-1);
                return Ok(Ending::Ended(code, String::from_utf8_lossy(&text).trim().to_string()));
            }
            std::thread::sleep(Duration::from_micros(300).min(after.saturating_sub(begin.elapsed())));
        }
        match struck {
            Struck::Group => kill_group(&mut child)?,
            Struck::Command => child.kill().context("cannot kill")?,
            Struck::Youngest => {
                let youngest = marked::processes(&self.mark).last().copied().unwrap_or(child.id());
                // It may have ended by itself meanwhile, and then nothing was struck but the end is as sudden.
                let _ = marked::kill(youngest).context("cannot kill")?;
            }
        }
        // The others are told by the one that is gone.
        let begin = Instant::now();
        while child.try_wait()?.is_none() {
            if begin.elapsed() > PATIENCE {
                marked::end(&self.mark);
                child.wait()?;
                return Ok(Ending::Hung);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Ending::Killed)
    }

    /// Checks that no process is left that was started here, however it was detached.
    pub fn no_process_is_left(&self) -> Result<()> {
        let left = marked::left_after(&self.mark, PATIENCE);
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|process| command_line(*process)).collect();
            marked::end(&self.mark);
            bail!("{} processes live on: {}", left.len(), names.join("; "));
        }
        Ok(())
    }

    /// Checks that the next command removes the folders that a kill has left among temporary files.
    pub fn scratch_is_swept(&self) -> Result<()> {
        // It fails after its script, which never trains.
        let results = self.path("swept");
        let line = format!("record --isolated --output-dir {} -- true", results.display());
        let (_, stderr) = self.run_to_its_end(&line)?;
        for entry in fs::read_dir(self.path("scratch"))?.flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with("headroom-isolated-");
            // One without a lock was struck at the moment it was made; it is removed once it is old.
            if is_ours && entry.path().join("lock").exists() {
                bail!("{} is left after the next command: {stderr}", entry.path().display());
            }
        }
        Ok(())
    }

    /// Checks that the registry is readable and has no fewer runs than before.
    pub fn registry_is_whole(&self) -> Result<()> {
        if !self.path("home").exists() {
            return Ok(());
        }
        let runs = self.prints_json("runs list --json")?.as_array().map_or(0, Vec::len);
        let counted = self.path("runs-before");
        let before = fs::read_to_string(&counted).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        fs::write(&counted, runs.to_string())?;
        if runs < before {
            bail!("{before} runs were in the registry, {runs} are left");
        }
        Ok(())
    }

    /// Checks that every JSON file under a folder parses.
    pub fn json_files_are_whole(&self, folder: &str) -> Result<()> {
        for file in files_under(&self.path(folder))? {
            if file.extension().is_some_and(|extension| extension == "json") {
                let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
                let parsed: Result<Value, _> = serde_json::from_slice(&bytes);
                parsed.with_context(|| format!("{} is not whole", file.display()))?;
            }
        }
        Ok(())
    }

    pub fn holds_no_temporary_file(&self) -> Result<()> {
        let files = files_under(&self.folder)?;
        let left = files.iter().find(|file| file.to_string_lossy().ends_with(".tmp"));
        left.map_or(Ok(()), |file| bail!("{} was left behind", file.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Processes that outlived a kill may still write here; the folder is among temporary files and may stay.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn files_under(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(files) };
    for entry in entries {
        let entry = entry?;
        // A process that is still alive may remove it meanwhile.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_under(&entry.path())?),
            Ok(_) => files.push(entry.path()),
            Err(_) => {}
        }
    }
    Ok(files)
}

fn kill_group(child: &mut Child) -> Result<()> {
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-9", "--", &group]).status().context("cannot run kill")?;
    if !killed.success() && child.try_wait()?.is_none() {
        bail!("kill -9 {group} failed");
    }
    Ok(())
}

/// The words of a process, for a message.
fn command_line(process: u32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ").trim().chars().take(200).collect()
}
