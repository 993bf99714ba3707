//! Scripts that write, delete, truncate, link, commit, fork and detach, under each way of isolation: the user's tree is
//! compared by content before and after.

use crate::place::{Done, Place};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const WAYS: [&str; 3] = ["overlay", "landlock", "copy"];

/// Those of the ways that this system allows; the others are named in the test's output.
#[expect(clippy::print_stderr, reason = "a way that is left out is told")]
pub fn allowed(ways: &[&'static str]) -> Vec<&'static str> {
    let place = Place::new();
    let is_allowed = |way: &&str| {
        let done = place.shell(&format!("$HEADROOM record --isolated --isolation {way} --output-dir o -- true"));
        let is_refused = done.stderr.contains("cannot be kept from your files here");
        if is_refused {
            eprintln!("not allowed here: {}", done.stderr);
        }
        !is_refused
    };
    ways.iter().copied().filter(is_allowed).collect()
}

/// More entries than a copy takes over where writing is denied.
const CROWDED: usize = 1100;
/// Larger than what such a copy takes over.
const LARGE: u64 = 9 << 20;

/// A working folder with siblings, links that lead out, a repository, large files and a home folder.
pub struct Yard(pub Place);

impl Yard {
    pub fn new() -> Yard {
        let place = Place::new();
        for folder in ["work/images", "work/tmp", "sibling/deep", "user/.cache/huggingface", "scratch", "kept"] {
            fs::create_dir_all(place.path(folder)).unwrap();
        }
        for image in 0..CROWDED {
            place.write(&format!("work/images/{image}.png"), "pixels");
        }
        for name in
            ["work/small.txt", "work/gone.txt", "sibling/a.txt", "sibling/b.txt", "sibling/deep/c.txt", "user/own.txt"]
        {
            place.write(name, name);
        }
        place.write("user/.cache/huggingface/model", "weights");
        fs::File::create(place.path("work/large.bin")).unwrap().set_len(LARGE).unwrap();
        symlink("../sibling", place.path("work/out")).unwrap();
        symlink(place.path("user/own.txt"), place.path("work/own")).unwrap();
        let git =
            "cd work && git init -q . && git add small.txt && git -c user.name=a -c user.email=a@b commit -qm first";
        assert_eq!(place.shell(git).code, Some(0));
        Yard(place)
    }

    /// Content, kind and mode of every file, by path; the recordings and the registry are the command's own.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut open = vec!["work", "sibling", "user"].into_iter().map(|name| self.0.path(name)).collect::<Vec<_>>();
        while let Some(path) = open.pop() {
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if about.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                vec![]
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path, (about.mode(), content));
        }
        found
    }

    fn unchanged_since(&self, before: &BTreeMap<PathBuf, (u32, Vec<u8>)>, case: &str) {
        let after = self.tree();
        for (path, content) in before {
            assert!(after.get(path) == Some(content), "{case}: {} was changed or removed", path.display());
        }
        let new: Vec<&PathBuf> = after.keys().filter(|path| !before.contains_key(*path)).collect();
        assert!(new.is_empty(), "{case}: new are {new:?}");
    }

    /// `headroom record --isolated` of a shell script in the working folder. It never trains, so the command fails after it.
    fn line(way: &str, options: &str) -> String {
        format!("$HEADROOM record --isolated --isolation {way} {options} --output-dir ../recorded -- sh script.sh")
    }

    pub fn surroundings(&self) -> String {
        let (home, scratch) = (self.0.path("user"), self.0.path("scratch"));
        format!("cd work; export HOME={} TMPDIR={}; unset XDG_CACHE_HOME HF_HOME;", home.display(), scratch.display())
    }

    pub fn run(&self, way: &str, options: &str, script: &str) -> Done {
        self.0.write("work/script.sh", script);
        self.0.shell(&format!("{} {}", self.surroundings(), Yard::line(way, options)))
    }

    pub fn scratch_is_empty(&self) -> bool {
        fs::read_dir(self.0.path("scratch")).unwrap().next().is_none()
    }
}

/// Changes in the working folder. Each line is one command, which says whether it worked.
const INSIDE: &[&str] = &[
    "rm images/5.png",
    "rm -r images",
    "echo new > new.txt",
    "echo over > small.txt",
    "truncate -s 10 large.bin",
    "echo more >> large.bin",
    "printf x | dd of=large.bin bs=1 seek=5 conv=notrunc",
    "mv small.txt moved.txt",
    "rm gone.txt",
    "chmod 600 moved.txt",
    "touch -d 2001-01-01 moved.txt",
    "ln moved.txt hard.txt",
    "mkdir -p deep/er",
    "git -c user.name=a -c user.email=a@b commit -qam second",
    "git checkout -q -b other",
    "rm own",
    "mkfifo pipe",
    "(echo forked > forked.txt)",
    "setsid sh -c 'echo detached > detached.txt'",
];

/// Changes beyond it: beside it, through links, by absolute paths, in the home folder.
const OUTSIDE: &[&str] = &[
    "echo x > ../sibling/a.txt",
    "echo x >> \"$BESIDE/a.txt\"",
    "echo x >> out/b.txt",
    "rm out/b.txt",
    "rm -r ../sibling/deep",
    "mv ../sibling/a.txt taken.txt",
    "truncate -s 0 \"$BESIDE/a.txt\"",
    "echo x >> own",
    "echo x > \"$HOME/notes.txt\"",
    "rm \"$HOME/own.txt\"",
    "echo x > \"$ORIGIN/small.txt\"",
    "rm -r \"$ORIGIN/images\"",
    "ln -s /etc ../sibling/link",
    "setsid sh -c 'echo x > ../sibling/detached.txt'",
    "git -C \"$ORIGIN\" -c user.name=a -c user.email=a@b commit -q --allow-empty -m third",
];

/// A script that runs the lines and prints each with its outcome.
fn script(yard: &Yard, lines: &[&str]) -> String {
    let mut text =
        format!("export BESIDE={} ORIGIN={}\n", yard.0.path("sibling").display(), yard.0.path("work").display());
    for (number, line) in lines.iter().enumerate() {
        text += &format!("{{ {line}; }} >/dev/null 2>&1 && echo \"{number} done\" || echo \"{number} denied\"\n");
    }
    text
}

fn outcomes(done: &Done, lines: &[&str], outcome: &str) -> usize {
    let count = done.stdout.lines().filter(|line| line.ends_with(outcome)).count();
    let all = done.stdout.lines().filter(|line| line.ends_with(" done") || line.ends_with(" denied")).count();
    assert_eq!(all, lines.len(), "{}\n{}", done.stdout, done.stderr);
    count
}

#[test]
fn a_script_changes_no_file_of_the_folder_it_runs_in() {
    let yard = Yard::new();
    let text = script(&yard, INSIDE);
    yard.0.write("work/script.sh", &text);
    let before = yard.tree();
    for way in allowed(&WAYS) {
        let done = yard.run(way, "", &text);
        let worked = outcomes(&done, INSIDE, " done");
        match way {
            "landlock" => assert!(worked > INSIDE.len() / 2, "{}", done.stdout),
            _ => assert_eq!(worked, INSIDE.len(), "{way}\n{}\n{}", done.stdout, done.stderr),
        }
        yard.unchanged_since(&before, way);
        assert!(yard.scratch_is_empty(), "{way}");
    }
}

#[test]
fn a_script_changes_nothing_beyond_its_folder() {
    let yard = Yard::new();
    let text = script(&yard, OUTSIDE);
    yard.0.write("work/script.sh", &text);
    let before = yard.tree();
    for way in allowed(&["overlay", "landlock"]) {
        let done = yard.run(way, "", &text);
        let worked = outcomes(&done, OUTSIDE, " done");
        match way {
            // Every path is there and can be written: it is merely thrown away.
            "overlay" => assert!(worked >= OUTSIDE.len() - 2, "{}\n{}", done.stdout, done.stderr),
            _ => assert!(worked <= 2, "{}\n{}", done.stdout, done.stderr),
        }
        yard.unchanged_since(&before, way);
    }
}

#[test]
fn an_ordinary_user_is_shielded_by_layers_too() {
    let yard = Yard::new();
    let lines: Vec<&str> = INSIDE.iter().chain(OUTSIDE).filter(|line| !line.contains("git")).copied().collect();
    yard.0.write("work/script.sh", script(&yard, &lines));
    // Root becomes somebody else, with a copy of the program that he may run.
    let program = yard.0.path("headroom");
    fs::copy(env!("CARGO_BIN_EXE_headroom"), &program).unwrap();
    fs::set_permissions(yard.0.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let own = if fs::metadata("/proc/self").unwrap().uid() == 0 {
        assert!(Command::new("chown").arg("-R").arg("65534:65534").arg(yard.0.path(".")).status().unwrap().success());
        "setpriv --reuid 65534 --regid 65534 --clear-groups"
    } else {
        ""
    };
    let before = yard.tree();
    for way in allowed(&["overlay", "landlock"]) {
        let line = Yard::line(way, "").replace("$HEADROOM", &format!("{own} {}", program.display()));
        let done = yard.0.shell(&format!("{} export HEADROOM_HOME=$HOME/registry; {line}", yard.surroundings()));
        let worked = outcomes(&done, &lines, " done");
        if way == "overlay" {
            assert!(worked >= lines.len() - 2, "{}\n{}", done.stdout, done.stderr);
        }
        yard.unchanged_since(&before, way);
        assert!(yard.scratch_is_empty(), "{way}");
    }
    // In a folder of somebody else's, as `/data/team` is.
    if !own.is_empty() {
        assert!(Command::new("chown").arg("0:0").arg(yard.0.path(".")).status().unwrap().success());
        let line = Yard::line("overlay", "").replace("../recorded", "$HOME/recorded");
        let line = line.replace("$HEADROOM", &format!("{own} {}", program.display()));
        let done = yard.0.shell(&format!("{} export HEADROOM_HOME=$HOME/registry; {line}", yard.surroundings()));
        assert!(outcomes(&done, &lines, " done") > lines.len() / 2, "{}\n{}", done.stdout, done.stderr);
        yard.unchanged_since(&before, "in another's folder");
    }
}

#[test]
fn writes_of_databases_and_mapped_files_are_thrown_away() {
    let yard = Yard::new();
    let table = "import sqlite3\ndata = sqlite3.connect('data.sqlite')\ndata.execute('create table t (x blob)')\n\
                 data.execute('insert into t values (zeroblob(9000000))')\ndata.commit()\n";
    yard.0.write("work/make.py", table);
    assert_eq!(yard.0.shell("cd work && python3 make.py").code, Some(0));
    let python = "import mmap, sqlite3\ndata = sqlite3.connect('data.sqlite')\n\
                  data.execute('insert into t values (1)')\ndata.commit()\n\
                  print('rows', data.execute('select count(*) from t').fetchone()[0])\n\
                  with open('large.bin', 'r+b') as file:\n    mmap.mmap(file.fileno(), 0)[:4] = b'mine'\n\
                  print('mapped', open('large.bin', 'rb').read(4))\n";
    yard.0.write("work/write.py", python);
    yard.0.write("work/script.sh", "exec python3 write.py");
    let before = yard.tree();
    for way in allowed(&["overlay", "copy"]) {
        let done = yard.run(way, "", "exec python3 write.py");
        assert!(done.stdout.contains("rows 2") && done.stdout.contains("mapped b'mine'"), "{}", done.stderr);
        yard.unchanged_since(&before, way);
    }
}

#[test]
fn an_allowed_path_is_written_and_nothing_else() {
    let yard = Yard::new();
    let kept = yard.0.path("kept");
    let text = format!("echo result > {}/{{name}}; echo x > new.txt", kept.display());
    yard.0.write("work/script.sh", "");
    for way in allowed(&WAYS) {
        let name = format!("{way}.txt");
        let before = yard.tree();
        let options = format!("--allow-write {}", kept.display());
        yard.run(way, &options, &text.replace("{name}", &name));
        yard.0.write("work/script.sh", "");
        assert_eq!(fs::read_to_string(kept.join(&name)).unwrap(), "result\n", "{way}");
        yard.unchanged_since(&before, way);
    }
    let done = yard.run("copy", "--allow-write no/such", "");
    done.is_error(2, "no such path", &["--allow-write no/such", "there is no such folder or file"]);
}

#[test]
fn a_real_run_is_not_shielded_and_takes_no_such_options() {
    let yard = Yard::new();
    yard.0.write("work/script.sh", "echo mine > new.txt");
    let line = |options: &str| {
        format!("{} $HEADROOM record {options} --output-dir ../recorded -- sh script.sh", yard.surroundings())
    };
    yard.0.shell(&line("--allow-write .")).is_error(2, "not shielded", &["add --isolated or --stop"]);
    yard.0.shell(&line("")).is_error(2, "no torch", &["never loaded torch.optim"]);
    assert_eq!(yard.0.read("work/new.txt"), b"mine\n");
    let stopped = yard.0.shell(&line("--stop"));
    assert!(stopped.stderr.contains("own results are dropped: --allow-write PATH keeps"), "{}", stopped.stderr);
}

#[test]
fn the_first_way_that_works_is_taken_and_the_others_are_told() {
    let yard = Yard::new();
    yard.0.write("work/script.sh", "echo x > small.txt");
    let before = yard.tree();
    let first = allowed(&WAYS)[0];
    let line = Yard::line("", "").replace("--isolation ", "");
    let done = yard.0.shell(&format!("{} {line}", yard.surroundings()));
    let is_layered = done.stderr.contains("layers over your files");
    assert_eq!(is_layered, first == "overlay", "{}", done.stderr);
    yard.unchanged_since(&before, first);
    // Without the right to make namespaces, as in a container.
    let refusing = "echo 0 > /proc/sys/user/max_user_namespaces; \
                    exec setpriv --bounding-set -all --inh-caps -all --no-new-privs sh -c \"$LINE\"";
    let done =
        yard.0.shell(&format!("{} LINE='{line}'; export LINE; unshare -Ur sh -c '{refusing}'", yard.surroundings()));
    if done.stderr.contains("unshare:") {
        assert_ne!(first, "overlay", "{}", done.stderr);
        return;
    }
    assert!(
        done.stderr.contains("runs in a copy") && done.stderr.contains("cannot make a user namespace"),
        "{}",
        done.stderr
    );
    yard.unchanged_since(&before, "refused");
}

#[test]
fn the_end_of_a_shielded_script_is_told_as_it_was() {
    let yard = Yard::new();
    for way in allowed(&WAYS) {
        let done = yard.run(way, "", "exit 7");
        done.is_error(3, way, &["ended with exit status: 7"]);
        let done = yard.run(way, "", "kill -KILL $$");
        done.is_error(3, way, &["signal: 9"]);
        let line = Yard::line(way, "").replace("sh script.sh", "no-such-program");
        let done = yard.0.shell(&format!("{} {line}", yard.surroundings()));
        done.is_error(2, way, &["cannot start `no-such-program`", "No such file"]);
    }
}

#[test]
fn the_price_and_the_gaps_of_a_copy_are_told_beforehand() {
    let yard = Yard::new();
    let done = yard.run("copy", "", "true");
    let told = &done.stderr;
    assert!(told.contains("each process copies") && told.contains("in about"), "{told}");
    assert!(told.contains("nothing keeps the script from writing to") && told.contains("work/out"), "{told}");
    for way in allowed(&WAYS) {
        let said = match way {
            "overlay" => "layers over your files, which are thrown away",
            "landlock" => "all other writing is denied; each process copies",
            _ => "the script runs in a copy of its folder; each process copies",
        };
        let done = yard.run(way, "", "true");
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
}

#[test]
fn the_hook_runs_wherever_temporary_files_lie() {
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    let train = "import torch\noptimizer = torch.optim.SGD()\nfor _ in range(20):\n    optimizer.step()\n";
    for temporary in ["tmp", "$PWD/tmp"] {
        for way in allowed(&WAYS) {
            let yard = Yard::new();
            yard.0.write("work/train.py", train);
            let line = format!(
                "{} export TMPDIR={temporary} PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}; \
                 $HEADROOM record --stop --isolation {way} -- python3 train.py",
                yard.surroundings(),
                torch.display()
            );
            let done = yard.0.shell(&line);
            assert_eq!(done.code, Some(0), "{way} {temporary}\n{}", done.stderr);
            assert!(done.stderr.contains("recorded "), "{}", done.stderr);
            // With a fake torch nothing is measured, but the hook is the first on the path.
            let says = "import os, sys\nsys.exit('the hook is ' + str(os.path.exists(sys.path[1] + '/headroom_hook')))";
            yard.0.write("work/train.py", says);
            let done = yard.0.shell(&format!(
                "{} export TMPDIR={temporary}; $HEADROOM optimize --isolation {way} -- python3 train.py",
                yard.surroundings()
            ));
            assert!(done.stderr.contains("the hook is True"), "{way} {temporary}\n{}", done.stderr);
            assert!(fs::read_dir(yard.0.path("work/tmp")).unwrap().next().is_none(), "{way} {temporary}");
        }
    }
}

#[test]
fn caches_are_shared_by_the_processes_of_a_search_only() {
    let script = "import os, sys\nhome = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')\n\
                  place = home + '/huggingface/downloaded'\nknown = os.path.exists(place)\n\
                  other = os.path.exists('own-result')\nopen(place, 'a').write('x')\nopen('own-result', 'w')\n\
                  model = open(home + '/huggingface/model').read()\n\
                  import torch\noptimizer = torch.optim.SGD()\n\
                  print('known', known, 'own', other, model, flush=True)\n\
                  sys.exit('downloaded before: %s, own result: %s, %s' % (known, other, model))\n";
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    for way in allowed(&["overlay", "landlock"]) {
        let yard = Yard::new();
        yard.0.write("work/train.py", script);
        let before = yard.tree();
        let done = yard.0.shell(&format!(
            "{} export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}; \
             $HEADROOM optimize --isolation {way} --output-dir ../results -- python3 train.py",
            yard.surroundings(),
            torch.display()
        ));
        // The script is run twice: it took too few steps for a measurement and a recording at once.
        let said = "downloaded before: True, own result: False, weights";
        assert!(done.stderr.contains(said), "{way}\n{}", done.stderr);
        yard.unchanged_since(&before, way);
    }
}

#[test]
fn the_folder_in_pwd_is_the_one_the_script_runs_in() {
    let yard = Yard::new();
    yard.0
        .write("work/append.py", "import os\nopen(os.environ['PWD'] + '/small.txt', 'a').write('x')\nprint('wrote')\n");
    let before = yard.tree();
    for way in allowed(&WAYS) {
        // A shell would set it anew.
        let line = Yard::line(way, "").replace("sh script.sh", "python3 append.py");
        let done = yard.0.shell(&format!("{} {line}", yard.surroundings()));
        assert!(done.stdout.contains("wrote"), "{way}\n{}", done.stderr);
        yard.unchanged_since(&before, way);
    }
}

#[test]
fn a_changed_file_that_nothing_kept_from_a_script_is_told() {
    for command in ["record --isolated", "optimize"] {
        let yard = Yard::new();
        let path = yard.0.path("work/small.txt");
        yard.0.write("work/write.py", format!("open('{}', 'a').write('x')", path.display()));
        let line = format!("$HEADROOM {command} --isolation copy --output-dir ../recorded -- python3 write.py");
        let done = yard.0.shell(&format!("{} {line}", yard.surroundings()));
        let told = format!("{} was changed meanwhile", path.display());
        assert_eq!(done.stderr.matches(&told).count(), 1, "{command}\n{}", done.stderr);
    }
}

#[test]
fn a_folder_that_a_script_mounts_in_its_copy_is_not_emptied_with_it() {
    let yard = Yard::new();
    let text = format!("mkdir m && mount --bind {} m && echo mounted", yard.0.path("work").display());
    yard.0.write("work/script.sh", &text);
    let before = yard.tree();
    let line = Yard::line("copy", "");
    let done = yard.0.shell(&format!("{} unshare --user --map-root-user --mount {line}", yard.surroundings()));
    if done.stderr.contains("unshare:") {
        assert!(!allowed(&WAYS).contains(&"overlay"), "{}", done.stderr);
        return;
    }
    assert!(done.stdout.contains("mounted"), "{}", done.stderr);
    yard.unchanged_since(&before, "mounted");
    assert!(yard.scratch_is_empty());
}

#[test]
fn no_file_is_made_among_the_devices() {
    let name = format!("/dev/headroom-test-{}", std::process::id());
    for way in allowed(&["overlay", "landlock"]) {
        let yard = Yard::new();
        let done = yard.run(way, "", &format!("echo x > {name}; echo x > /dev/null && echo null; true"));
        let is_there = fs::remove_file(&name).is_ok();
        assert!(!is_there, "{way}: {name} was made");
        assert!(done.stdout.contains("null"), "{way}: devices can be written\n{}", done.stderr);
    }
}

#[test]
fn the_path_that_was_denied_is_told() {
    for way in allowed(&["landlock"]) {
        let yard = Yard::new();
        yard.0.write("work/train.py", "open('../sibling/a.txt', 'w')");
        let done = yard.0.shell(&format!(
            "{} $HEADROOM optimize --isolation {way} --output-dir ../results -- python3 train.py",
            yard.surroundings()
        ));
        done.is_error(3, "denied", &["writing to ../sibling/a.txt is denied", "--allow-write ../sibling/a.txt"]);
    }
}

#[test]
fn a_search_in_the_working_folder_itself_is_refused() {
    let place = Place::new();
    let done = place.shell("$HEADROOM optimize --in-place -- python3 train.py");
    done.is_error(2, "gone", &["--in-place is gone", "--allow-write PATH"]);
}
