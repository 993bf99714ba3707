//! A folder in which a command is run and killed, with its own home.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{target_folder, workspace_root};

pub struct Place {
    folder: PathBuf,
    binary: PathBuf,
}

pub enum Ending {
    Killed,
    /// Exit code and standard error of a run that ended before the kill.
    Ended(i32, String),
}

impl Place {
    pub fn new(binary: &Path) -> Result<Place> {
        let parent = target_folder().join("kills");
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        let number = fs::read_dir(&parent)?.count();
        let folder = (number..).map(|number| parent.join(number.to_string())).find(|folder| !folder.exists());
        let folder = folder.context("no free name for a folder")?;
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Place { folder, binary: binary.to_path_buf() })
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

    /// The arguments are split at spaces.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(line.split_whitespace()).current_dir(&self.folder).env("HEADROOM_HOME", self.path("home"));
        let torch = workspace_root().join("crates/cli/tests/data/fake_torch");
        command.env("PYTHONPATH", torch).env("PYTHONDONTWRITEBYTECODE", "1");
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

    /// Kills only the process, or also everything that it started.
    pub fn run_and_kill(&self, line: &str, after: Duration, whole_group: bool) -> Result<Ending> {
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
        if whole_group {
            kill_group(&mut child)?
        } else {
            child.kill().context("cannot kill")?
        }
        child.wait()?;
        Ok(Ending::Killed)
    }

    /// Waits for the process whose id is in a file of the place, for example a script's own.
    pub fn process_ends(&self, file: &str, within: Duration) -> Result<()> {
        let Ok(text) = fs::read_to_string(self.path(file)) else { return Ok(()) };
        let Ok(process) = text.trim().parse::<u32>() else { return Ok(()) };
        let begin = Instant::now();
        while is_alive(process) {
            if begin.elapsed() > within {
                bail!("process {process}, which it had started, lives on");
            }
            std::thread::sleep(Duration::from_millis(5));
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
        // Processes that outlived a kill may still write here; the folder is in cargo's target folder and may stay.
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

/// A zombie counts as ended.
fn is_alive(process: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let after_the_name = status.rsplit_once(')').map_or("", |(_, rest)| rest);
    !matches!(after_the_name.trim_start().chars().next(), None | Some('Z' | 'X'))
}
