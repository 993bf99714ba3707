//! Options of loaders, wherever they are said, and loops over loaders, wherever they stand.

use super::check;

const SET: &str = "import torch
from torch.utils.data import DataLoader, Dataset

class Set(Dataset):
    def __getitem__(self, index):
        return torch.load(index)
";

const TRAIN: &str = "
def train(model, optimizer, loader):
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
";

fn script(rest: &str) -> String {
    format!("{SET}{TRAIN}{rest}")
}

#[test]
fn options_are_read_from_flags_and_settings() {
    let by_flag = |default: &str, mark: &str| {
        script(&format!(
            "
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--nb-workers', type=int, default={default})
args = parser.parse_args()

def main(model, optimizer):
    options = {{'num_workers': args.nb_workers, 'pin_memory': True}} if torch.cuda.is_available() else {{}}
    loader = DataLoader(Set(), shuffle=True, **options){mark}
    for epoch in range(9):
        train(model, optimizer, loader)
"
        ))
    };
    check("TP301", &by_flag("0", "  # <-"));
    check("TP304", &by_flag("0", ""));
    check("TP301", &by_flag("4", ""));
    check("TP304", &by_flag("4", "  # <-"));
    let assigned = "
def settings():
    conf = EasyDict()
    conf.num_workers = 0
    return conf

def main(model, optimizer, conf):
    loader = DataLoader(Set(), shuffle=True, num_workers=conf.num_workers)  # <-
    train(model, optimizer, loader)
";
    check("TP301", &script(assigned));
    let clicked = "
import click

@click.command()
@click.option('--n_jobs', type=int, default=0)
def main(n_jobs):
    loader = DataLoader(Set(), shuffle=True, num_workers=n_jobs)  # <-
    train(None, None, loader)
";
    check("TP301", &script(clicked));
}

#[test]
fn several_loaders_are_read_by_one_loop() {
    let zipped = "
def main(model, optimizer):
    labelled = DataLoader(Set(), num_workers=2)  # <-
    unlabelled = DataLoader(Set(), num_workers=2)  # <-
    for epoch in range(9):
        for x, u in zip(labelled, unlabelled):
            loss = model(x, u)
            loss.backward()
            optimizer.step()
";
    check("TP304", &script(zipped));
    let by_phase = "
def main(model, optimizer):
    loaders = {'train': DataLoader(Set(), num_workers=2), 'val': None}  # <-
    for epoch in range(9):
        for phase in ['train', 'val']:
            for x in loaders[phase]:
                loss = model(x)
                loss.backward()
                optimizer.step()
";
    check("TP304", &script(by_phase));
}

#[test]
fn what_only_evaluations_read_is_theirs() {
    let memory = |call: &str, mark: &str| {
        script(&format!(
            "
def test(model, memory):
    model.eval()
    with torch.no_grad():
        for x in memory:
            model(x.cuda())

def main(model, optimizer):
    first = DataLoader(Set(), num_workers=2)  # <-
    second = DataLoader(Set(), num_workers=2){mark}
    for epoch in range(9):
        train(model, optimizer, first)
        {call}
"
        ))
    };
    check("TP304", &memory("test(model, second)", ""));
    check("TP304", &memory("train(model, optimizer, second)", "  # <-"));
}

#[test]
fn unknown_keys_of_a_dictionary_may_be_options() {
    let rest = "
def main(model, optimizer, settings):
    chosen = {key: value for key, value in settings.items() if key in NAMES}
    loader = DataLoader(Set(), **chosen)
    train(model, optimizer, loader)
";
    check("TP301", &script(rest));
    check("TP302", &script(rest));
}
