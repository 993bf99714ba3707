//! Loader options, wherever they are set, and loops over loaders, wherever they are.

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
    check("TP301", &by_flag("False", "  # <-"));
    check("TP301", &by_flag("True", ""));
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

#[test]
fn epochs_are_epochs_whoever_keeps_their_number() {
    check(
        "TP304",
        &script(
            "
def main(model, optimizer, params):
    loader = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
    for epoch in range(params.start, params.epochs):
        train(model, optimizer, loader)
",
        ),
    );
}

#[test]
fn loaders_of_two_branches_are_read_as_one() {
    check(
        "TP304",
        &script(
            "
def of_folder():
    return DataLoader(Set(), shuffle=True, num_workers=4)  # <-

def of_list():
    return DataLoader(Set(), shuffle=True, num_workers=4)  # <-

def choose(args):
    if args.folder:
        loader = of_folder()
    else:
        loader = of_list()
    return loader

def main(model, optimizer, args):
    loader = choose(args)
    for epoch in range(9):
        train(model, optimizer, loader)
",
        ),
    );
}

#[test]
fn an_object_hands_out_the_batches_of_its_loader() {
    let rest = "
class Batches:
    def __init__(self, data):
        self.loader = DataLoader(data, shuffle=True, num_workers=4)  # <-

    def __iter__(self):
        return ((x.cuda(), y.cuda()) for x, y in self.loader)

def main(model, optimizer):
    batches = Batches(Set())
    for epoch in range(9):
        for x, y in batches:
            loss = model(x)
            loss.backward()
            optimizer.step()
";
    check("TP304", &format!("{SET}{rest}"));
}

#[test]
fn an_object_keeps_its_loaders_by_phase() {
    let rest = "
class Trainer:
    def load(self):
        self.loaders = dict()
        self.loaders['train'] = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
        self.loaders['test'] = DataLoader(Set(), num_workers=4)

    def train(self):
        for x in self.loaders['train']:
            loss = self.model(x.cuda())
            loss.backward()
            self.optimizer.step()

    def start(self):
        for epoch in range(9):
            self.train()
";
    check("TP304", &format!("{SET}{rest}"));
}

#[test]
fn a_loader_read_beside_training_measures() {
    let rest = "
def features(net, loader):
    net.eval()
    return [net(x.cuda()).cpu() for x in loader]

def collect(net, faces):
    found = []
    for x in faces:
        found.append(net(x.cuda()))
    return found

def main(net, optimizer):
    loader = DataLoader(Set(), shuffle=True, num_workers=8)  # <-
    faces = DataLoader(Set(), shuffle=False, num_workers=4)
    for epoch in range(9):
        for x in loader:
            loss = net(x.cuda())
            loss.backward()
            optimizer.step()
        collect(net, faces)
";
    check("TP302", &format!("{SET}{rest}"));
}

#[test]
fn a_loader_made_for_a_pass_that_measures_is_not_training() {
    check(
        "TP302",
        &script(
            "
def rollout(model, data):
    model.eval()

    def run(x):
        with torch.no_grad():
            return model(x.cuda())

    return torch.cat([run(x) for x in DataLoader(data, batch_size=64)], 0)

def main(model, optimizer):
    loader = DataLoader(Set(), shuffle=True)  # <-
    for epoch in range(9):
        baseline = rollout(model, Set())
        train(model, optimizer, loader)
",
        ),
    );
}

#[test]
fn a_choice_of_workers_that_is_not_known_is_not_zero() {
    check(
        "TP301",
        &script(
            "
import os

def main(model, optimizer, reader):
    options = {'num_workers': reader.count if os.name != 'nt' else 0, 'pin_memory': True}
    loader = DataLoader(Set(), shuffle=True, **options)
    train(model, optimizer, loader)
",
        ),
    );
}

#[test]
fn tensors_in_memory_are_known_by_either_address() {
    let (head, rest) = (
        "import torch
from torch.utils.data.dataset import TensorDataset
from torch.utils.data import DataLoader
",
        "
def main(model, optimizer, rows):
    loader = DataLoader(TensorDataset(rows), shuffle=True)
    train(model, optimizer, loader)
",
    );
    check("TP301", &format!("{head}{TRAIN}{rest}"));
}

#[test]
fn an_engine_is_told_its_epochs() {
    let rest = "
from torchnet.engine import Engine

def main(step, optimizer, args):
    loader = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
    engine = Engine()
    engine.train(step, loader, args.epochs, optimizer)
";
    check("TP304", &format!("{SET}{rest}"));
}

#[test]
fn validation_data_that_steps_are_zipped_with_feeds_training() {
    let rest = "
def search(model, optimizer):
    train_loader = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
    valid_loader = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
    for epoch in range(9):
        for x, v in zip(train_loader, valid_loader):
            loss = model(x.cuda(), v.cuda())
            loss.backward()
            optimizer.step()
";
    check("TP304", &format!("{SET}{rest}"));
}

#[test]
fn a_prefetcher_begins_its_loader_anew() {
    let rest = "
class Prefetcher:
    def __init__(self, loader):
        self.batches = iter(loader)

    def next(self):
        return next(self.batches)

def main(model, optimizer):
    loader = DataLoader(Set(), shuffle=True, num_workers=4)  # <-
    for epoch in range(9):
        prefetcher = Prefetcher(loader)
        x = prefetcher.next()
        while x is not None:
            loss = model(x.cuda())
            loss.backward()
            optimizer.step()
            x = prefetcher.next()
";
    check("TP304", &format!("{SET}{rest}"));
}
