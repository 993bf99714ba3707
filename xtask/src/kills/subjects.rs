//! The commands that are killed, and how to check for each that nothing was lost.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::place::{Place, Struck, files_under};
use super::shielded;

pub struct Subject {
    pub name: &'static str,
    pub needs: Needs,
    /// The folder in which it runs.
    pub working: &'static str,
    pub spread: Spread,
    /// The kinds of kill, one of which is drawn.
    pub struck: &'static [Struck],
    pub good_codes: &'static [i32],
    pub prepare: fn(&Place) -> Result<()>,
    /// The next command line, which depends on how far the previous run got.
    pub command: fn(&Place) -> String,
    pub after_a_kill: fn(&Place) -> Result<()>,
    pub after_an_end: fn(&Place) -> Result<()>,
}

/// Packages that a command needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Needs {
    Nothing,
    Torch,
    Ranks,
}

/// The moments of kills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Mostly in the first half: a resumed run is shorter than a whole one.
    Early,
    /// Over the whole run alike.
    Even,
}

const ALONE_OR_ALL: &[Struck] = &[Struck::Command, Struck::Group];

pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "train",
        needs: Needs::Nothing,
        working: ".",
        spread: Spread::Early,
        struck: ALONE_OR_ALL,
        good_codes: &[0],
        prepare: train_once_unharmed,
        command: train,
        after_a_kill: checkpoint_is_whole,
        after_an_end: trained_the_same,
    },
    Subject {
        name: "study",
        needs: Needs::Nothing,
        working: ".",
        spread: Spread::Early,
        struck: ALONE_OR_ALL,
        good_codes: &[0],
        prepare: measure_peaks,
        command: study,
        after_a_kill: study_is_whole,
        after_an_end: study_is_complete,
    },
    Subject {
        name: "optimize",
        needs: Needs::Nothing,
        working: ".",
        spread: Spread::Early,
        struck: ALONE_OR_ALL,
        // A gate of such a short run may fail; that is an answer, not a loss.
        good_codes: &[0, 1],
        prepare: measure_peaks,
        command: optimize,
        after_a_kill: optimize_left_whole_files,
        after_an_end: optimize_left_whole_files,
    },
    Subject {
        name: "record",
        needs: Needs::Nothing,
        working: ".",
        spread: Spread::Early,
        struck: ALONE_OR_ALL,
        good_codes: &[0],
        prepare: write_script_to_record,
        command: record,
        after_a_kill: recording_is_whole_or_absent,
        after_an_end: recording_is_whole_or_absent,
    },
    Subject {
        name: "lint",
        needs: Needs::Nothing,
        working: ".",
        spread: Spread::Early,
        struck: ALONE_OR_ALL,
        good_codes: &[0, 1],
        prepare: write_scripts_to_fix,
        command: fix,
        after_a_kill: scripts_are_old_or_new,
        after_an_end: scripts_are_all_new,
    },
    Subject {
        name: "optimize-torch",
        needs: Needs::Torch,
        working: shielded::WORKING,
        spread: Spread::Even,
        struck: ALONE_OR_ALL,
        // A gate of such a short search may fail.
        good_codes: &[0, 1],
        prepare: shielded::make_project,
        command: shielded::optimize,
        after_a_kill: shielded::nothing_is_left,
        after_an_end: shielded::nothing_is_left,
    },
    Subject {
        name: "record-torch",
        needs: Needs::Torch,
        working: shielded::WORKING,
        spread: Spread::Even,
        struck: ALONE_OR_ALL,
        good_codes: &[0],
        prepare: shielded::make_project,
        command: shielded::record,
        after_a_kill: shielded::nothing_is_left,
        after_an_end: shielded::nothing_is_left,
    },
    Subject {
        name: "train-ranks",
        needs: Needs::Ranks,
        working: ".",
        spread: Spread::Even,
        struck: &[Struck::Command, Struck::Group, Struck::Youngest],
        good_codes: &[0],
        prepare: train_ranks_once_unharmed,
        command: train_ranks,
        after_a_kill: ranks_left_a_whole_checkpoint,
        after_an_end: trained_the_same,
    },
];

const SMALL: &str = "--size nano --batch-size 2 --seq-len 16";

fn train_once_unharmed(place: &Place) -> Result<()> {
    ends_well(place, &format!("train {SMALL} --num-steps 80 --save unharmed --output-dir runs/unharmed"))
}

fn train(place: &Place) -> String {
    let run = format!("train {SMALL} --num-steps 80 --save ck --save-every 2 --output-dir runs/killed --overwrite");
    if place.path("ck/training_state.json").exists() { format!("{run} --resume ck") } else { run }
}

/// Two ranks with the data of one: half a batch each.
const ON_RANKS: &str = "mpirun --oversubscribe --allow-run-as-root -n 2 headroom train --size nano --seq-len 16 --batch-size 1 --threads 1";

fn train_ranks_once_unharmed(place: &Place) -> Result<()> {
    ends_well(place, &format!("{ON_RANKS} --num-steps 80 --save unharmed --output-dir runs/unharmed"))
}

fn train_ranks(place: &Place) -> String {
    let run = format!("{ON_RANKS} --num-steps 80 --save ck --save-every 2 --output-dir runs/killed --overwrite");
    if place.path("ck/training_state.json").exists() { format!("{run} --resume ck") } else { run }
}

/// Ranks whose launcher or neighbour is gone end by themselves.
fn ranks_left_a_whole_checkpoint(place: &Place) -> Result<()> {
    place.no_process_is_left()?;
    whole_if_it_is_there(place, &train_ranks(place))
}

fn checkpoint_is_whole(place: &Place) -> Result<()> {
    whole_if_it_is_there(place, &train(place))
}

/// A kill between the last checkpoint and the end leaves a complete run with nothing to resume. If it struck among the
/// renames of the last save, opening the folder finishes them first.
fn whole_if_it_is_there(place: &Place, next: &str) -> Result<()> {
    place.registry_is_whole()?;
    if !place.path("ck/training_state.json").exists() {
        return Ok(());
    }
    if place.path("ck/commit.json").exists() {
        let (code, stderr) = place.run_to_its_end(next)?;
        if code != 0 && !stderr.contains("is already at step 80") {
            bail!("a journal is left, and going on from the checkpoint ends with {code}: {stderr}");
        }
        return trained_the_same(place);
    }
    match place.json("ck/training_state.json")?["step"].as_u64() {
        Some(80) => trained_the_same(place),
        Some(_) => Ok(()),
        None => bail!("the checkpoint does not say its step"),
    }
}

/// Checks that the result is bit-identical, however often it was killed on the way. The next run starts from scratch.
fn trained_the_same(place: &Place) -> Result<()> {
    for file in ["model.safetensors", "config.json"] {
        let read = |folder: &str| {
            let path = place.path(folder).join(file);
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        if read("ck")? != read("unharmed")? {
            bail!("{file} after kills differs from the one of a run without");
        }
    }
    place.registry_is_whole()?;
    place.remove("ck")
}

fn measure_peaks(place: &Place) -> Result<()> {
    ends_well(place, "device")
}

fn study(place: &Place) -> String {
    let run = "study nano --batch-size 2 --seq-len 16 --versions v1,v2 --num-steps 40 --output-dir s";
    if place.path("s/study.json").exists() { format!("{run} --resume") } else { run.to_string() }
}

fn study_is_whole(place: &Place) -> Result<()> {
    if place.path("s/study.json").exists() {
        place.json("s/study.json")?;
    } else if place.path("s").exists() {
        // Killed before the first file: there is nothing to continue, and the folder is removed.
        place.remove("s")?;
    }
    place.registry_is_whole()
}

fn study_is_complete(place: &Place) -> Result<()> {
    let study = place.json("s/study.json")?;
    let runs = study["runs"].as_array().map_or(&[][..], Vec::as_slice);
    if runs.len() != 2 || runs.iter().any(|run| run["status"] != "finished") {
        bail!("a resumed study ended with {}", study["runs"]);
    }
    for run in runs {
        let folder = run["folder"].as_str().unwrap_or_default();
        place.json(&format!("s/{folder}/performance_summary.json"))?;
    }
    place.registry_is_whole()?;
    place.remove("s")
}

fn optimize(place: &Place) -> String {
    let number = fs::read_dir(place.path("runs")).map_or(0, |entries| entries.count());
    format!("optimize {SMALL} --rounds 4 --time 1 --curve-steps 4 --output-dir runs/optimized-{number}")
}

fn optimize_left_whole_files(place: &Place) -> Result<()> {
    place.json_files_are_whole("runs")?;
    place.registry_is_whole()
}

const SCRIPT_TO_RECORD: &str = "import time, torch\n\
    optimizer = torch.optim.SGD()\n\
    for _ in range(60):\n    time.sleep(0.002)\n    optimizer.step()\n";

fn write_script_to_record(place: &Place) -> Result<()> {
    place.write("train.py", SCRIPT_TO_RECORD)?;
    fs::create_dir(place.path("recordings")).context("cannot make a folder")?;
    place.write("recordings/record.mine.json", "mine")
}

fn record(place: &Place) -> String {
    let number = fs::read_dir(place.path("recordings")).map_or(0, |entries| entries.count());
    format!("record --output-dir recordings/{number} -- python3 train.py")
}

fn recording_is_whole_or_absent(place: &Place) -> Result<()> {
    place.no_process_is_left()?;
    if fs::read(place.path("recordings/record.mine.json"))? != b"mine" {
        bail!("a file of the user's was changed");
    }
    for file in files_under(&place.path("recordings"))? {
        if file.to_string_lossy().ends_with(".pt.trace.json") {
            let bytes = fs::read(&file)?;
            let parsed: Result<Value, _> = serde_json::from_slice(&bytes);
            parsed.with_context(|| format!("{} is half a trace", file.display()))?;
        }
    }
    Ok(())
}

const SCRIPTS: usize = 60;
const SLOW: &str = "import torch\nfrom torch.utils.data import DataLoader\n\n\
    def train(model, data, optimizer):\n    for batch in DataLoader(data, batch_size=8, shuffle=True):\n        \
    loss = model(batch.cuda()).mean()\n        optimizer.zero_grad(set_to_none=False)\n        loss.backward()\n        \
    optimizer.step()\n";

fn write_scripts_to_fix(place: &Place) -> Result<()> {
    fs::create_dir_all(place.path("scripts")).context("cannot make a folder")?;
    (0..SCRIPTS).try_for_each(|file| place.write(&format!("scripts/{file}.py"), SLOW))
}

fn fix(_: &Place) -> String {
    "lint --fix --unsafe-fixes --select TP501 --no-config scripts".to_string()
}

fn is_fixed(text: &str) -> bool {
    text != SLOW && !text.contains("set_to_none=False") && text.ends_with("optimizer.step()\n")
}

fn scripts_are_old_or_new(place: &Place) -> Result<()> {
    for file in 0..SCRIPTS {
        let text = fs::read_to_string(place.path(&format!("scripts/{file}.py")))?;
        if text != SLOW && !is_fixed(&text) {
            bail!("scripts/{file}.py is neither old nor new");
        }
    }
    Ok(())
}

fn scripts_are_all_new(place: &Place) -> Result<()> {
    for file in 0..SCRIPTS {
        if !is_fixed(&fs::read_to_string(place.path(&format!("scripts/{file}.py")))?) {
            bail!("scripts/{file}.py was not fixed by a run that ended");
        }
    }
    place.holds_no_temporary_file()?;
    write_scripts_to_fix(place)
}

fn ends_well(place: &Place, line: &str) -> Result<()> {
    match place.run_to_its_end(line)? {
        (0, _) => Ok(()),
        (code, stderr) => bail!("`headroom {line}` ended with {code}: {stderr}"),
    }
}
