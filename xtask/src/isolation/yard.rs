//! A user's tree in which scripts run: a home folder, a project with a repository, folders beside it, many files and large
//! ones.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::script::{scripts_folder, shared_folder};
use super::tree::Tree;
use crate::process::workspace_root;
use crate::python::quietly;
use crate::{marked, process};

/// More entries than a copy takes over where writing is denied.
const CROWDED: usize = 1500;
/// Larger than a file that such a copy takes over.
const LARGE: usize = 9 << 20;
/// No run of a script takes longer.
const LIMIT: Duration = Duration::from_secs(90);

/// Fills a database of `LARGE` bytes, and marks a file.
const DATABASE: &str = "import os, sqlite3, sys\n\
    data = sqlite3.connect('database.sqlite')\n\
    data.execute('create table items (x blob)')\n\
    data.execute('insert into items values (zeroblob(?))', (int(sys.argv[1]),))\n\
    data.commit()\n\
    try:\n    os.setxattr('package/model.py', 'user.kept', b'kept')\nexcept OSError:\n    pass\n";

/// Namespaces are refused inside, as a container's usual profile does.
const REFUSING: &str = "echo 0 > /proc/sys/user/max_user_namespaces; \
    exec setpriv --bounding-set -all --inh-caps -all --no-new-privs \"$@\"";

/// The parts that all runs of a suite share.
pub struct Ground {
    base: PathBuf,
    python: PathBuf,
    /// The ordinary user that root becomes.
    user: Option<u32>,
    is_refused: bool,
    /// Folders that commands before this suite have left.
    known: Vec<PathBuf>,
}

impl Ground {
    /// Makes the tree that yards are copied from, and a copy of the program that every user may run.
    pub fn new(headroom: &Path, python: &Path, user: Option<u32>, is_refused: bool) -> Result<Ground> {
        ensure!(user.is_none() || is_root(), "--user changes to another user, which takes root");
        let base = disk().join(format!("headroom-suite-{}", std::process::id()));
        fs::create_dir(&base).with_context(|| format!("cannot make {}", base.display()))?;
        let known = folders_of_ended_commands();
        let ground = Ground { base, python: python.to_path_buf(), user, is_refused, known };
        fs::copy(headroom, ground.headroom()).context("cannot copy the program")?;
        let torch = workspace_root().join("crates/cli/tests/data/fake_torch");
        quietly(Command::new("cp").arg("-a").arg(torch).arg(ground.torch()))?;
        ground.make_template()?;
        let mut open = Command::new("chmod");
        quietly(open.args(["-R", "a+rX"]).arg(&ground.base))?;
        if let Some(user) = user {
            let owner = format!("{user}:{user}");
            quietly(Command::new("chown").args(["-R", &owner]).arg(ground.template()))?;
        }
        Ok(ground)
    }

    fn headroom(&self) -> PathBuf {
        self.base.join("headroom")
    }

    pub fn torch(&self) -> PathBuf {
        self.base.join("fake_torch")
    }

    fn template(&self) -> PathBuf {
        self.base.join("template")
    }

    fn make_template(&self) -> Result<()> {
        let root = self.template();
        let folders = ["home/.cache/huggingface", "home/.config/tool", "project/data", "project/package"];
        for folder in folders.iter().chain(&["project/empty", "sibling/deep", "outside"]) {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("cannot make {folder}"))?;
        }
        let files = [
            "home/.bashrc",
            "home/notes.txt",
            "home/.config/tool/settings.toml",
            "home/.cache/huggingface/model",
            "project/small.txt",
            "project/gone.txt",
            "project/empty/only.txt",
            "project/package/model.py",
            "sibling/a.txt",
            "sibling/deep/b.txt",
            "outside/c.txt",
            "outside/d.txt",
        ];
        for name in files {
            fs::write(root.join(name), format!("# small {name}\n"))?;
        }
        for item in 0..CROWDED {
            fs::write(root.join(format!("project/data/item-{item:04}.txt")), "item\n")?;
        }
        let project = root.join("project");
        fs::write(project.join("large.bin"), vec![1; LARGE])?;
        symlink("../outside", project.join("out"))?;
        symlink("../home/notes.txt", project.join("notes"))?;
        for folder in [shared_folder(), scripts_folder()] {
            for entry in fs::read_dir(&folder)?.flatten().filter(|entry| entry.path().is_file()) {
                fs::copy(entry.path(), project.join(entry.file_name()))?;
            }
        }
        let python = |words: &[&str]| quietly(Command::new(&self.python).args(words).current_dir(&project));
        python(&["-c", DATABASE, &LARGE.to_string()]).context("cannot make a database")?;
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words).current_dir(&project);
            for name in GIT_VARIABLES {
                command.env_remove(name);
            }
            quietly(&mut command)
        };
        git(&["init", "-q", "."])?;
        git(&["add", "small.txt", "package"])?;
        git(&["commit", "-qm", "first"])
    }
}

/// A hook of git runs its children with these.
const GIT_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

impl Drop for Ground {
    fn drop(&mut self) {
        // It lies among the temporary files.
        let _ = wipe(&self.base);
    }
}

/// One copy of the user's tree, and the folders of the command beside it.
pub struct Yard<'a> {
    ground: &'a Ground,
    folder: PathBuf,
    /// The tree as it is, if nothing has changed it since it was read.
    known: Option<Tree>,
}

/// How a command ended, and what it and the script printed.
pub struct Done {
    pub code: Option<i32>,
    pub printed: String,
}

impl<'a> Yard<'a> {
    pub fn new(ground: &'a Ground, number: usize) -> Result<Yard<'a>> {
        let folder = ground.base.join(number.to_string());
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for name in ["scratch", "registry", "recorded"] {
            fs::create_dir(folder.join(name))?;
        }
        if let Some(user) = ground.user {
            quietly(Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(&folder))?;
        }
        Ok(Yard { ground, folder, known: None })
    }

    fn user(&self) -> PathBuf {
        self.folder.join("user")
    }

    /// The tree before a run: a new copy, unless the one that is there was found unchanged.
    pub fn before(&mut self) -> Result<Tree> {
        if let Some(known) = self.known.take() {
            return Ok(known);
        }
        wipe(&self.user())?;
        quietly(Command::new("cp").arg("-a").arg(self.ground.template()).arg(self.user()))?;
        Tree::read(&self.user())
    }

    pub fn after(&self) -> Result<Tree> {
        Tree::read(&self.user())
    }

    pub fn is_unchanged(&mut self, tree: Tree) {
        self.known = Some(tree);
    }

    /// Paths that the command left among temporary files; they are removed.
    pub fn left_in_scratch(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.folder.join("scratch"))?.flatten();
        let mut left: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        left.extend(folders_of_ended_commands().into_iter().filter(|path| !self.ground.known.contains(path)));
        left.iter().try_for_each(|path| wipe(path))?;
        wipe(&self.folder.join("recorded/results"))?;
        Ok(left.iter().map(|path| path.display().to_string()).collect())
    }

    /// The words of a shielded run.
    pub fn shielded(&self, command: &[&str], way: &str, script: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![];
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        if is_root() {
            // Mounts of a script that a mere copy does not keep from mounting.
            add(&["unshare", "--mount", "--propagation", "private"]);
        }
        let user = self.ground.user.map(|user| user.to_string());
        if let Some(user) = &user {
            add(&["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]);
        }
        if self.ground.is_refused {
            add(&["unshare", "--user", "--map-root-user", "sh", "-c", REFUSING, "sh"]);
        }
        words.push(self.ground.headroom().into_os_string());
        words.extend(command.iter().chain(&["--isolation", way, "--output-dir"]).map(OsString::from));
        words.push(self.folder.join("recorded/results").into_os_string());
        words.push("--".into());
        words.extend(script.iter().cloned());
        words
    }

    /// The words of a run with nothing around it.
    pub fn unshielded(&self, script: &[OsString]) -> Vec<OsString> {
        let user = self.ground.user.map(|user| user.to_string());
        let own = user.iter().flat_map(|user| ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]);
        own.map(OsString::from).chain(script.iter().cloned()).collect()
    }

    /// The words that start a script of the project, with the absolute path of a file as its argument.
    pub fn script(&self, name: &str, is_shell: bool) -> Vec<OsString> {
        let program = if is_shell { OsStr::new("sh") } else { self.ground.python.as_os_str() };
        vec![program.to_os_string(), name.into(), self.project().join("small.txt").into_os_string()]
    }

    fn project(&self) -> PathBuf {
        self.user().join("project")
    }

    /// Runs a command in the project to its end. What it has detached may live on.
    pub fn run(&self, words: &[OsString], variables: &[(&str, &OsStr)]) -> Result<Done> {
        let (program, arguments) = words.split_first().context("no command")?;
        let printed = self.folder.join("printed.txt");
        let output = fs::File::create(&printed).context("cannot make a file for the output")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.project());
        command.env("HOME", self.user().join("home")).env("PWD", self.project()).env("ORIGIN", self.project());
        command.env("TMPDIR", self.folder.join("scratch")).env("HEADROOM_HOME", self.folder.join("registry"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("no_proxy", "*");
        for name in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "TORCH_HOME", "PYTHONPATH"] {
            command.env_remove(name);
        }
        for name in GIT_VARIABLES {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        // A file and not a pipe, which detached processes would keep open.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let spelled = process::spell(&command);
        let mut child = command.spawn().with_context(|| format!("cannot start `{spelled}`"))?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                bail!("`{spelled}` was not done after {} s", LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let printed = fs::read(&printed).context("cannot read what was printed")?;
        Ok(Done { code: status.code(), printed: String::from_utf8_lossy(&printed).into_owned() })
    }
}

/// A folder on a disk: the layers over one in memory lie elsewhere.
pub fn disk() -> PathBuf {
    let usual = PathBuf::from("/var/tmp");
    if usual.is_dir() { usual } else { std::env::temp_dir() }
}

/// Folders among temporary files whose command has ended without removing them: nobody holds their lock.
fn folders_of_ended_commands() -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let lock = fs::File::options().write(true).open(path.join("lock"));
        name.starts_with("headroom-isolated-") && lock.is_ok_and(|lock| lock.try_lock().is_ok())
    };
    let found = || -> Vec<PathBuf> {
        let entries =
            ["/tmp", "/var/tmp", "/dev/shm"].into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.flatten().map(|entry| entry.path()).filter(is_left).collect()
    };
    if found().is_empty() {
        return vec![];
    }
    // One that was being made at that moment has its lock now.
    std::thread::sleep(Duration::from_millis(200));
    found()
}

/// Files with this mark in folders that all users share; they are removed.
pub fn strays(mark: &str) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for folder in ["/tmp", "/var/tmp", "/dev/shm", "/dev", "/"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        found.extend(
            entries.filter(|entry| entry.file_name().to_string_lossy().contains(mark)).map(|entry| entry.path()),
        );
    }
    found.iter().try_for_each(|path| wipe(path))?;
    Ok(found)
}

/// Removes a file or a tree, whatever its modes.
fn wipe(path: &Path) -> Result<()> {
    if path.is_dir() {
        let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(path).stderr(Stdio::null()).status();
    }
    quietly(Command::new("rm").arg("-rf").arg(path))
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

/// A mark for the processes and stray files of one run.
pub fn mark(number: usize) -> String {
    format!("headroom-suite-{}-{number}-", std::process::id())
}

/// Ends processes that a run has left.
pub fn end_left(mark: &str, patience: Duration) -> usize {
    let left = marked::left_after(mark, patience);
    if !left.is_empty() {
        marked::end(mark);
    }
    left.len()
}
