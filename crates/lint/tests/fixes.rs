//! Fixes keep what a script computes: each case is one that once went wrong when all fixes were applied.

use headroom_lint::fix::{Edit, Fix, Safety, compatible};
use headroom_lint::{Input, Selection, lint, repair};
use ruff_text_size::TextRange;

/// The scripts after all fixes of a rule, unsafe ones included; a second turn must change nothing.
fn fixed_files(code: &str, files: &[(&str, &str)]) -> Vec<String> {
    let inputs: Vec<Input> =
        files.iter().map(|(path, text)| Input { path: path.to_string(), bytes: text.as_bytes().to_vec() }).collect();
    let selection = Selection::new(&[code.to_string()], &[]).expect("a known code");
    let after = |inputs: &[Input]| -> Vec<Input> {
        let repairs = repair(inputs, &selection, Safety::Unsafe);
        let mut after = inputs.to_vec();
        for file in repairs.files {
            after[file.input].bytes = file.after.into_bytes();
        }
        after
    };
    let once = after(&inputs);
    assert_eq!(after(&once), once, "{code}: a second turn changes something");
    once.into_iter().map(|input| String::from_utf8(input.bytes).expect("text")).collect()
}

fn fixed(code: &str, script: &str) -> String {
    fixed_files(code, &[("train.py", script)]).remove(0)
}

/// The fix changes `before` into `after`, and nothing else.
fn check(code: &str, script: &str, before: &str, after: &str) {
    assert!(script.contains(before), "{before} is not in\n{script}");
    let want = script.replace(before, after);
    let is = fixed(code, script);
    assert!(is == want, "{code} gives\n{is}\ninstead of\n{want}");
}

fn check_unchanged(code: &str, script: &str) {
    let is = fixed(code, script);
    assert!(is == script, "{code} gives\n{is}\ninstead of\n{script}");
}

/// A loop of steps with `body` at its end, indented by eight spaces.
fn step_with(body: &str) -> String {
    format!(
        "import time\nimport torch\n\n\ndef train(model, loader, optimizer, criterion, meter, norm_meter):\n    for step, (x, y) in enumerate(loader):\n        x, y = x.cuda(), y.cuda()\n        loss = criterion(model(x), y)\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n{body}"
    )
}

#[test]
fn no_grad_is_not_put_on_a_forward_that_training_calls() {
    let script = "import torch
import torch.nn as nn


class Speech(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def inference(self, x):
        frames = []
        for _ in range(8):
            x = self.decoder(x.cuda())
            frames.append(x)
        return torch.stack(frames)


def train(model, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model.inference(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
";
    check_unchanged("TP601", script);
    // Nor where nobody is seen to call it.
    check_unchanged("TP601", &script[..script.find("\n\ndef train").expect("the loop")]);
}

#[test]
fn no_grad_is_put_directly_above_an_evaluation() {
    let script = "import click
import torch


@click.command()
def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x.cuda()).argmax(1) == y.cuda()).sum()
    return right
";
    check("TP601", script, "\ndef evaluate", "\n@torch.no_grad()\ndef evaluate");
    check("TP601", &script.replace("@click.command()\n", ""), "def evaluate", "@torch.no_grad()\ndef evaluate");
}

#[test]
fn a_wait_before_a_clock_or_an_event_stays() {
    check_unchanged("TP105", &step_with("        torch.cuda.synchronize()\n        print(start.elapsed_time(end))\n"));
    check_unchanged("TP105", &step_with("        torch.cuda.synchronize()\n        print(time.time())\n"));
    check_unchanged("TP105", &step_with("        torch.cuda.synchronize()\n        perf_meter.update(1)\n"));
}

#[test]
fn a_wait_that_guards_a_buffer_stays() {
    check_unchanged("TP105", &step_with("        copy_stream.synchronize()\n        buffer.copy_(x)\n"));
    check_unchanged("TP105", &step_with("        torch.cuda.synchronize()\n        x.to('cpu', non_blocking=True)\n"));
}

#[test]
fn a_cache_is_emptied_on_the_authors_condition_and_removed_without_one() {
    let script = step_with("\n        torch.cuda.empty_cache()\n\n        meter.step()\n");
    check("TP204", &script, "\n        torch.cuda.empty_cache()\n", "");
    check_unchanged("TP204", &step_with("        if step == memory:\n            torch.cuda.empty_cache()\n"));
}

/// A module's forward that builds `value`, and `rest` after it.
fn module_with(value: &str, rest: &str) -> String {
    format!(
        "import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n = x.size(1)
        mask = {value}
{rest}        return self.proj(x).masked_fill(mask[:, :1], 0.0)


def train(loader, optimizer):
    model = Block(8).cuda()
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
"
    )
}

const TRIANGLE: &str = "torch.triu(torch.ones(n, n, device=x.device), diagonal=1).bool()";

#[test]
fn a_kept_mask_serves_training_after_inference_and_every_rank() {
    let after = fixed("TP201", &module_with(TRIANGLE, ""));
    let kept = format!(
        "        if self.mask_cache is None or self.mask_cache.size(0) < n or self.mask_cache.device != x.device:
            with torch.inference_mode(False):
                self.mask_cache = {TRIANGLE}
        mask = self.mask_cache[:n, :n]
"
    );
    assert!(after.contains(&kept), "{after}");
    // A buffer of a size that differs between ranks must not be broadcast.
    assert!(after.contains("        self.mask_cache = None\n") && !after.contains("register_buffer"), "{after}");
}

#[test]
fn a_mask_that_is_written_or_takes_its_type_from_data_is_not_kept() {
    check_unchanged("TP201", &module_with(TRIANGLE, "        mask[:, 0] = False\n"));
    check_unchanged("TP201", &module_with(TRIANGLE, "        mask.fill_diagonal_(True)\n"));
    check_unchanged("TP201", &module_with("torch.triu(torch.ones(n, n, device=x.device)).to(x.dtype)", ""));
    check_unchanged("TP201", &module_with("torch.triu(torch.ones(n, n, device=x.device, dtype=x.dtype))", ""));
    check_unchanged("TP201", &module_with("torch.triu(torch.ones(n, n, device=self.device))", ""));
    let scripted = module_with(TRIANGLE, "").replace("model = Block(8)", "model = torch.jit.script(Block(8))");
    check_unchanged("TP201", &scripted);
}

#[test]
fn a_running_average_gets_every_value() {
    check_unchanged("TP103", &step_with("        meter.update(loss)\n"));
    check_unchanged("TP103", &step_with("        norm_meter.update(loss, x.size(0))\n"));
    check_unchanged("TP103", &step_with("        print(meter.update(loss), loss)\n"));
    check_unchanged("TP103", &step_with("        lines.append(f'{loss}')\n"));
    // An event that seldom falls on the fiftieth step.
    check_unchanged("TP103", &step_with("        if done[step]:\n            print(f'{loss:.3f}')\n"));
    let shown = step_with("        print(f'{step} {loss:.3f}')\n");
    check("TP103", &shown, "        print(", "        if step % 50 == 0:\n            print(");
}

#[test]
fn a_reduced_value_and_a_checkpoint_are_not_put_under_a_condition() {
    let reduced = "        torch.distributed.all_reduce(loss_sum)\n        loss_sum /= 8\n";
    check_unchanged("TP506", &step_with(reduced));
    check_unchanged("TP603", &step_with("        torch.save(model.state_dict(), 'last.pt')\n"));
}

/// A script with a loop of single-precision steps.
const LOOP: &str = "import torch
import torch.nn as nn
from torch.utils.data import DataLoader
# Where to compute.
DEVICE = torch.device('cuda')


def train(loader, optimizer):
    model = nn.Linear(8, 8).to(DEVICE)
    for x, y in loader:
        loss = (model(x.to(DEVICE)) - y.to(DEVICE)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
";

#[test]
fn tf32_is_set_once_by_the_script_that_is_started() {
    let line = "torch.set_float32_matmul_precision(\"high\")";
    let main = LOOP.replace("import DataLoader\n", "import DataLoader\nfrom engine import train as other\n");
    let after = fixed_files("TP402", &[("engine.py", LOOP), ("main.py", &main)]);
    assert!(!after[0].contains(line), "{}", after[0]);
    assert_eq!(after[1].matches(line).count(), 1, "{}", after[1]);
    let import = "from engine import train as other\n";
    assert!(after[1].contains(&format!("{import}\n{line}\n\n# Where")), "{}", after[1]);
}

#[test]
fn a_switch_goes_below_the_imports_at_the_head_of_a_file() {
    let late = LOOP.replace("def train", "def helper():\n    pass\n\n\nfrom torch import optim\n\n\ndef train");
    let after = fixed("TP402", &late);
    let line = after.find("torch.set_float32").expect("the switch");
    assert!(line < after.find("def helper").expect("the function"), "{after}");
}

#[test]
fn an_argument_gets_its_own_line_where_the_others_have_theirs() {
    let script = "import torch
from torch.utils.data import DataLoader

def train(dataset, model, optimizer):
    loader = DataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        num_workers=4,
    )
    for epoch in range(9):
        for x, y in loader:
            loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
            loss.backward()
            optimizer.step()
";
    check("TP304", script, "num_workers=4,\n", "num_workers=4,\n        persistent_workers=True,\n");
    let closed = script.replace("num_workers=4,\n    )", "num_workers=4)");
    check("TP304", &closed, "num_workers=4)", "num_workers=4,\n        persistent_workers=True)");
    let row = script.replace(
        "(\n        dataset,\n        batch_size=8,\n        shuffle=True,\n        num_workers=4,\n    )",
        "(dataset, num_workers=4)",
    );
    check("TP304", &row, "num_workers=4)", "num_workers=4, persistent_workers=True)");
    // Without workers, `persistent_workers=True` is an error.
    let chosen = row.replace("num_workers=4", "num_workers=args.workers");
    check("TP304", &chosen, "args.workers)", "args.workers, persistent_workers=args.workers > 0)");
    check_unchanged("TP304", &row.replace("num_workers=4", "**({'num_workers': 4} if cuda else {})"));
}

#[test]
fn workers_are_given_only_to_datasets_that_are_read_by_index() {
    let script = |dataset: &str| {
        format!(
            "import torch
from torch.utils.data import DataLoader, IterableDataset
from PIL import Image

class Rows({dataset}):
    {}
        return Image.open(self.path)

def train(model, optimizer):
    loader = DataLoader(Rows(), batch_size=8)
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
",
            if dataset == "IterableDataset" { "def __iter__(self):" } else { "def __getitem__(self, index):" }
        )
    };
    check("TP301", &script("torch.utils.data.Dataset"), "batch_size=8)", "batch_size=8, num_workers=2)");
    check_unchanged("TP301", &script("IterableDataset"));
}

#[test]
fn host_data_is_copied_without_blocking_and_without_a_device_at_hand() {
    let script = step_with("        w = torch.from_numpy(rows).to(x.device)\n        print((w * loss).shape)\n");
    check("TP203", &script, "to(x.device)", "to(x.device, non_blocking=True)");
    check_unchanged("TP203", &script.replace("to(x.device)", "type_as(x)"));
}

#[test]
fn a_tensor_is_made_on_the_device_only_with_options_that_the_device_has() {
    let script =
        step_with("        noise = torch.zeros(8, 4, dtype=torch.half).to(x.device)\n        print(noise.shape)\n");
    check("TP202", &script, "torch.half).to(x.device)", "torch.half, device=x.device)");
    for option in ["requires_grad=True", "pin_memory=True", "out=kept"] {
        check_unchanged("TP202", &script.replace("dtype=torch.half", option));
    }
}

#[test]
fn a_sum_kept_on_the_device_has_at_least_single_precision() {
    let script = "import torch

def train(model, loader, optimizer, criterion):
    total = 0
    for x, y in loader:
        out = model(x.cuda())
        loss = criterion(out, y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
";
    let after = script.replace("loss.item()", "loss.detach().float()").replace("return total", "return float(total)");
    assert_eq!(fixed("TP101", script), after);
    // A count is a whole number before and after.
    let count = script.replace("loss.item()", "(out.argmax(1) == y.cuda()).sum().item()");
    let after = count.replace(".sum().item()", ".sum()").replace("return total", "return int(total)");
    assert_eq!(fixed("TP101", &count), after);
}

#[test]
fn a_value_that_is_changed_in_place_afterwards_is_read_first() {
    let script = "import torch

def train(model, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        last = loss.item()
        loss /= 4
        loss.backward()
        optimizer.step()
    return last
";
    check_unchanged("TP101", script);
    let after = script.replace("        loss /= 4\n", "");
    let want = after.replace("loss.item()", "loss.detach().float()").replace("return last", "return float(last)");
    assert_eq!(fixed("TP101", &after), want);
}

#[test]
fn a_sum_that_belongs_to_an_outer_function_stays_a_number() {
    let script = "import torch

def train(model, loader, optimizer, criterion):
    total = 0

    def one_pass():
        nonlocal total
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            total += loss.item()

    one_pass()
    return total
";
    check_unchanged("TP101", script);
}

#[test]
fn a_loader_that_is_only_read_where_it_is_made_gets_no_pinned_memory() {
    let script = "import torch
from torch.utils.data import DataLoader

def tokenize(dataset):
    data = {}
    for batch in DataLoader(dataset, num_workers=4):
        data.update(batch)
    return data
";
    check_unchanged("TP302", script);
}

#[test]
fn channels_last_goes_to_the_model_that_is_trained() {
    let script = "import torch
import torch.nn as nn

def fuse(conv):
    return nn.Conv2d(3, 8, 3).to(conv.weight.device)

def train(loader, optimizer, half):
    model = nn.Conv2d(3, 8, 3)
    model = model.to('cuda')
    for x, y in loader:
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = (model(x.cuda()) - y.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
";
    check("TP408", script, "to('cuda')", "to('cuda', memory_format=torch.channels_last)");
    let branch = script.replace("    model = model.to('cuda')", "    if half:\n        model = model.to('cuda')");
    check_unchanged("TP408", &branch);
}

#[test]
fn a_bias_stays_where_stored_weights_are_loaded() {
    let script = "import torch.nn as nn

def block():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
";
    check("TP406", script, "8, 3)", "8, 3, bias=False)");
    check_unchanged("TP406", &format!("{script}\n\ndef load(model, state):\n    model.load_state_dict(state)\n"));
}

#[test]
fn a_notebook_that_calls_pip_without_a_percent_sign_is_read_whole() {
    let cell = "pip install -q torch\\nimport torch\\nx = 1";
    let json = format!(r#"{{"cells": [{{"cell_type": "code", "source": "{cell}"}}], "nbformat": 4}}"#);
    let report = lint(&[Input { path: "a.ipynb".to_string(), bytes: json.into_bytes() }], &Selection::default());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn of_clashing_fixes_the_first_is_taken() {
    let edit = |start: u32, end: u32, text: &str| Edit::replace(TextRange::new(start.into(), end.into()), text);
    let fixes = [
        Fix::safe("one", vec![edit(1, 3, "")]),
        Fix::safe("two", vec![edit(2, 4, "")]),
        Fix::safe("three", vec![edit(4, 5, "")]),
    ];
    let taken: Vec<&str> = compatible(fixes.iter()).iter().map(|fix| fix.title.as_str()).collect();
    assert_eq!(taken, ["one", "three"]);
}
