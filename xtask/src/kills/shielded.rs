//! Commands that run a user's PyTorch script, killed at any moment: the user's tree stays as it was, and neither a process
//! nor, after the next command, a folder is left.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::place::Place;
use crate::isolation::Tree;
use crate::python::quietly;

/// The user's project. Results, registry and temporary files lie outside the user's tree.
pub const WORKING: &str = "user/project";

/// A small model on small batches. Told so, it detaches a process that would outlive it, and writes into its folder.
const SCRIPT: &str = r#"import subprocess, sys, time, torch
if "carelessly" in sys.argv:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    open("notes.txt", "a").write("changed")
    open("../data/words.txt", "a").write("changed")
torch.manual_seed(0)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.ones(640, 16), torch.zeros(640, 4))
for epoch in range(int(sys.argv[1])):
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        time.sleep(0.002)
"#;

pub fn make_project(place: &Place) -> Result<()> {
    fs::create_dir_all(place.path("user/data")).context("cannot make a folder")?;
    fs::create_dir_all(place.path("results")).context("cannot make a folder")?;
    place.write("user/data/words.txt", "one two\n")?;
    place.write("user/project/notes.txt", "mine\n")?;
    place.write("user/project/train.py", SCRIPT)?;
    quietly(Command::new("cp").arg("-a").arg(place.path("user")).arg(place.path("pristine")))
}

/// The smallest search. The script would take long: it is ended when it is measured.
pub fn optimize(place: &Place) -> String {
    let options = "--only foreach-optimizer --steps 4 --warmup-steps 1 --rounds 2 --time-limit 2m";
    let (number, python) = (results(place), place.torch());
    format!("optimize {options} --output-dir ../../results/{number} -- {python} train.py 1000 carelessly")
}

/// The user's real run, which ends by itself.
pub fn record(place: &Place) -> String {
    let options = "--warmup-steps 1 --timed-steps 3 --steps 3";
    let (number, python) = (results(place), place.torch());
    format!("record {options} --output-dir ../../results/{number} -- {python} train.py 3")
}

/// The number of a new folder: a killed command may have left its own.
fn results(place: &Place) -> usize {
    (0..).find(|number| !place.path(&format!("results/{number}")).exists()).unwrap_or_default()
}

pub fn nothing_is_left(place: &Place) -> Result<()> {
    place.no_process_is_left()?;
    place.scratch_is_swept()?;
    let (before, after) = (Tree::read(&place.path("pristine"))?, Tree::read(&place.path("user"))?);
    if let Some(change) = before.changes(&after).first() {
        bail!("the user's tree was changed: {change}");
    }
    place.json_files_are_whole("results")?;
    place.registry_is_whole()
}
