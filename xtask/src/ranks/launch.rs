//! Starts ranks under either MPI, waits for them with a limit, and reports how they ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Upper limit for every run of these checks.
const LIMIT: Duration = Duration::from_secs(120);

/// Everything that a check works with.
pub struct Place {
    pub headroom: PathBuf,
    pub open_mpi: Mpi,
    pub mpich: Mpi,
    pub folder: PathBuf,
    pub kills: u32,
    pub seed: u64,
}

/// A launcher, with the library that belongs to it.
#[derive(Clone)]
pub struct Mpi {
    launcher: PathBuf,
    flags: &'static [&'static str],
    pub library: PathBuf,
    /// Whether the library is passed to the program explicitly; otherwise it finds the launcher's own.
    named: bool,
}

impl Mpi {
    pub fn open_mpi(python: &Path) -> Result<Mpi> {
        // More ranks than cores, and running as root in a container.
        Mpi::of(python, "mpirun", "libmpi.so.40", &["--oversubscribe", "--allow-run-as-root"])
    }

    pub fn mpich(python: &Path) -> Result<Mpi> {
        Mpi::of(python, "mpiexec", "libmpi_abi.so.1", &[])
    }

    fn of(python: &Path, launcher: &str, library: &str, flags: &'static [&'static str]) -> Result<Mpi> {
        let home = python.parent().and_then(Path::parent).context("the environment has no folder")?;
        let (launcher, library) = (home.join("bin").join(launcher), home.join("lib").join(library));
        for file in [&launcher, &library] {
            ensure!(file.exists(), "the package has no {}", file.display());
        }
        Ok(Mpi { launcher, flags, library, named: false })
    }

    /// The same launcher with another library from its folder.
    pub fn with_library(&self, name: &str) -> Mpi {
        self.with_file(&self.library.with_file_name(name))
    }

    pub fn with_file(&self, library: &Path) -> Mpi {
        Mpi { library: library.into(), named: true, ..self.clone() }
    }

    /// Runs `headroom train` to its end with one thread per rank; a single rank runs without a launcher.
    pub fn train(&self, place: &Place, ranks: usize, name: &str, flags: &[&str]) -> Result<Ended> {
        self.start(place, ranks, name, flags)?.end(LIMIT)
    }

    pub fn start(&self, place: &Place, ranks: usize, name: &str, flags: &[&str]) -> Result<Running> {
        if ranks == 1 {
            let mut command = Command::new(&place.headroom);
            command.args(words(place, name, flags));
            return Running::start(command, place, name);
        }
        let mut command = self.launcher();
        command.args(["-n", &ranks.to_string()]).arg(&place.headroom).args(words(place, name, flags));
        Running::start(command, place, name)
    }

    /// Two ranks with SLURM's variables instead of this launcher's.
    pub fn train_as_slurm(&self, place: &Place, name: &str, flags: &[&str]) -> Result<Ended> {
        const SCRIPT: &str = "export SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_STEP_NUM_TASKS=$OMPI_COMM_WORLD_SIZE; \
                              unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE; exec \"$@\"";
        let mut command = self.launcher();
        command.args(["-n", "2", "sh", "-c", SCRIPT, "sh"]).arg(&place.headroom).args(words(place, name, flags));
        Running::start(command, place, name)?.end(LIMIT)
    }

    /// Runs any command to its end on several ranks.
    pub fn run(&self, place: &Place, ranks: usize, name: &str, words: &[&str]) -> Result<Ended> {
        let mut command = self.launcher();
        command.args(["-n", &ranks.to_string()]).arg(&place.headroom).args(words);
        Running::start(command, place, name)?.end(LIMIT)
    }

    /// The launcher in the form that `--launcher` takes.
    pub fn spelled(&self) -> String {
        format!("{} {} -n {{ranks}}", self.launcher.display(), self.flags.join(" "))
    }

    /// Runs any command as one process, which starts ranks itself.
    pub fn run_alone(&self, place: &Place, name: &str, words: &[&str]) -> Result<Ended> {
        let mut command = Command::new(&place.headroom);
        command.args(words);
        self.put_on_path(&mut command);
        Running::start(command, place, name)?.end(LIMIT)
    }

    /// Trains with separate flags for each rank.
    pub fn train_each(&self, place: &Place, each: &[Vec<&str>], name: &str, shared: &[&str]) -> Result<Ended> {
        let mut command = self.launcher();
        for (rank, flags) in each.iter().enumerate() {
            if rank > 0 {
                command.arg(":");
            }
            command.args(["-n", "1"]).arg(&place.headroom).args(words(
                place,
                name,
                &[flags.as_slice(), shared].concat(),
            ));
        }
        Running::start(command, place, name)?.end(LIMIT)
    }

    /// Puts the launcher's folder first: its library is searched for there.
    fn put_on_path(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = self.launcher.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
    }

    fn launcher(&self) -> Command {
        let mut command = Command::new(&self.launcher);
        command.args(self.flags);
        self.put_on_path(&mut command);
        if self.named {
            command.env("HEADROOM_MPI_LIBRARY", &self.library);
        }
        command
    }
}

impl Place {
    /// Runs one process with these variables, as a launcher would set them.
    pub fn alone(&self, variables: &[(&str, &str)]) -> Result<Ended> {
        let mut command = Command::new(&self.headroom);
        command.args(words(self, "alone", &["--size", "nano", "--num-steps", "1"]));
        command.envs(variables.iter().copied());
        Running::start(command, self, "alone")?.end(LIMIT)
    }
}

fn words(place: &Place, name: &str, flags: &[&str]) -> Vec<String> {
    let folder = place.folder.join(name).display().to_string();
    let own = ["train", "--threads", "1", "--log-interval", "1", "--json", "--overwrite", "--output-dir", &folder];
    own.iter().chain(flags).map(|word| word.to_string()).collect()
}

/// Running ranks. Their output goes to files, so that a stopped rank does not keep a pipe open.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    spelled: String,
}

impl Running {
    fn start(mut command: Command, place: &Place, name: &str) -> Result<Running> {
        let [stdout, stderr] = ["out", "err"].map(|kind| place.folder.join(format!("{name}.{kind}")));
        let file = |path: &Path| fs::File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let spelled = crate::process::spell(&command);
        command.env("HEADROOM_HOME", place.folder.join("home")).current_dir(&place.folder);
        command.stdin(Stdio::null()).stdout(file(&stdout)?).stderr(file(&stderr)?);
        let child = command.spawn().with_context(|| format!("cannot start `{spelled}`"))?;
        Ok(Running { child, stdout, stderr, spelled })
    }

    /// Process ids of the ranks, in rank order.
    pub fn ranks(&mut self, size: usize, limit: Duration) -> Result<Vec<u32>> {
        let begin = Instant::now();
        loop {
            let mut found = ranks_below(self.child.id());
            found.sort_unstable();
            if found.len() == size {
                return Ok(found.into_iter().map(|(_, pid)| pid).collect());
            }
            if begin.elapsed() > limit || self.child.try_wait()?.is_some() {
                bail!("`{}` has {} ranks of {size}: {}", self.spelled, found.len(), self.error());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn wait_for_step(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        while !fs::read_to_string(&self.stdout).unwrap_or_default().contains("\"loss\"") {
            if begin.elapsed() > limit || self.child.try_wait()?.is_some() {
                bail!("`{}` took no step: {}", self.spelled, self.error());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn error(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn end(mut self, limit: Duration) -> Result<Ended> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > limit {
                for (_, pid) in ranks_below(self.child.id()) {
                    let _ = signal(pid, "KILL");
                }
                self.child.kill()?;
                self.child.wait()?;
                bail!("`{}` was not done after {limit:?}: {}", self.spelled, self.error());
            }
            thread::sleep(Duration::from_millis(10));
        };
        let stdout = fs::read_to_string(&self.stdout).unwrap_or_default();
        Ok(Ended { status, stdout, stderr: self.error(), spelled: self.spelled })
    }
}

pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    spelled: String,
}

impl Ended {
    pub fn succeeded(&self) -> Result<()> {
        ensure!(self.status.success(), "`{}` ended with {}: {}", self.spelled, self.status, self.stderr);
        Ok(())
    }

    /// Checks that it failed and printed these words.
    pub fn failed_with(&self, words: &str) -> Result<()> {
        ensure!(!self.status.success(), "`{}` was a success", self.spelled);
        ensure!(self.stderr.contains(words), "`{}` did not say `{words}`:\n{}", self.spelled, self.stderr);
        Ok(())
    }
}

/// Rank and process id of every rank that descends from a process.
fn ranks_below(launcher: u32) -> Vec<(usize, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    let pids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.into_iter().filter(|pid| descends(*pid, launcher)).filter_map(|pid| Some((rank_of(pid)?, pid))).collect()
}

fn descends(mut pid: u32, from: u32) -> bool {
    while pid > 1 {
        if pid == from {
            return true;
        }
        let Some(parent) = parent_of(pid) else { return false };
        pid = parent;
    }
    false
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn rank_of(pid: u32) -> Option<usize> {
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let names = [b"OMPI_COMM_WORLD_RANK=".as_slice(), b"PMI_RANK="];
    let value =
        variables.split(|byte| *byte == 0).find_map(|pair| names.iter().find_map(|name| pair.strip_prefix(*name)))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

pub fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "there is no process {pid}");
    Ok(())
}
