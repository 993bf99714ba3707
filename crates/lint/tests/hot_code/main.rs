//! Code that counts as running once per step: each case is a training script whose marked lines, and no others, must be
//! reported.

mod loaders;
mod look_alikes;
mod losses_and_steps;
mod reached;

use headroom_lint::{Input, Selection, lint};

/// Compares the reported lines of `code` in a script with those marked `# <-`.
fn check(code: &str, script: &str) {
    check_files(code, &[("train.py", script)]);
}

fn check_files(code: &str, files: &[(&str, &str)]) {
    let inputs: Vec<Input> =
        files.iter().map(|(path, text)| Input { path: path.to_string(), bytes: text.as_bytes().to_vec() }).collect();
    let selection = Selection::new(&[code.to_string()], &[]).expect("a known code");
    let report = lint(&inputs, &selection);
    let found: Vec<(String, u32)> =
        report.findings.iter().map(|finding| (finding.place.file.clone(), finding.place.line)).collect();
    let marked = |(path, text): &(&str, &str)| {
        let lines = (1..).zip(text.lines().map(str::to_string).collect::<Vec<_>>());
        let path = path.to_string();
        lines.filter(|(_, line)| line.contains("# <-")).map(move |(at, _)| (path.clone(), at)).collect::<Vec<_>>()
    };
    let want: Vec<(String, u32)> = files.iter().flat_map(marked).collect();
    assert_eq!(found, want, "{code}");
}

/// A loop of steps with `body` at its end, indented by eight spaces.
fn step_with(body: &str) -> String {
    format!(
        "import time\nimport torch\n\ndef train(model, loader, optimizer, criterion, args, verbose=False, meter=None):\n    last = time.time()\n    first = True\n    best = None\n    for step, (x, y) in enumerate(loader):\n        x, y = x.cuda(), y.cuda()\n        out = model(x)\n        loss = criterion(out, y)\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n{body}"
    )
}

/// A step without a loop: unseen code repeats it.
const HANDED_OVER: &str = "import torch
from somewhere import Engine

def run(model, criterion, optimizer, loader):
    def one_step(engine, batch):
        x, y = batch[0].cuda(), batch[1].cuda()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()  # <-

    Engine(one_step).run(loader)
";

#[test]
fn a_step_that_is_handed_over_is_called_by_whoever_gets_it() {
    check("TP101", HANDED_OVER);
    // Called once, visibly, and nowhere else: that is not a step of a loop.
    let once = HANDED_OVER.replace("Engine(one_step).run(loader)", "one_step(None, next(loader))");
    check("TP101", &once.replace("  # <-", "").replace("def run(", "def test_run("));
}

#[test]
fn a_training_step_is_one_by_its_name_where_its_parts_cannot_be_followed() {
    check(
        "TP101",
        "import torch
from somewhere import Engine

def run(forward_pass, backward_passes, kind):
    backward_pass = backward_passes[kind]

    def training_step(engine, batch):
        loss = forward_pass(batch.to(torch.device('cuda')))
        output = {'loss': loss.item()}  # <-
        backward_pass(engine, loss)
        return output

    def validation_step(engine, batch):
        return forward_pass(batch).item()

    return Engine(training_step), Engine(validation_step)
",
    );
}

#[test]
fn a_step_may_be_spread_over_methods() {
    check(
        "TP101",
        "import torch

class Learner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.device = model, optimizer, torch.device('cuda')

    def learn(self, x, y):
        self.ahead(x.to(self.device), y.to(self.device))
        self.optimizer.zero_grad()
        self.back()
        self.optimizer.step()

    def ahead(self, x, y):
        self.loss = (self.model(x) - y).pow(2).mean()
        self.seen = self.loss.item()  # <-

    def back(self):
        self.loss.backward()

    def describe(self):
        return self.loss.item()
",
    );
}

#[test]
fn a_forward_with_the_training_loop_inside_runs_once() {
    check(
        "TP101",
        "import torch
from accelerate import Accelerator

class Trainer(torch.nn.Module):
    def forward(self):
        at = self.counter.item()
        for _ in range(self.rounds):
            loss = self.model(next(self.batches).cuda())
            self.accelerator.backward(loss)
            self.optimizer.step()
            print(loss.item())  # <-
        return at
",
    );
}

#[test]
fn a_device_that_is_asked_about_may_be_another() {
    let script = "import torch

def train(model, loader, optimizer, device):
    if device.type != 'cpu':
        torch.backends.cudnn.benchmark = True
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        optimizer.step()
        total = loss.item()  # <-
";
    check("TP101", script);
    let on_host = "    if device.type != 'cpu':\n        torch.backends.cudnn.benchmark = True\n";
    let host = script.replace(on_host, "    device = torch.device('cpu')\n").replace("  # <-", "");
    check("TP101", &host);
    // A default leaves the choice to the caller; fetching to the host means that things are elsewhere.
    check("TP101", &script.replace(on_host, "").replace("device):", "device: str = 'cpu'):"));
    check("TP101", &script.replace(on_host, "").replace("device):", "device='cpu'):"));
    check("TP101", &script.replace(on_host, "    kept = model(loader).to('cpu')\n"));
    let chosen = "    if device is None:\n        device = torch.device('cpu')\n";
    check("TP101", &script.replace(on_host, chosen).replace("device):", "device=None):"));
}

#[test]
fn whether_there_is_a_criterion_is_no_question_to_the_device() {
    check(
        "TP104",
        "import torch
from somewhere import build_loss

class Model:
    def __init__(self, options):
        self.device = torch.device('cuda')
        self.pixels = build_loss(options).to(self.device) if options else None

    def optimize_parameters(self, x, y):
        loss = 0
        if self.pixels:
            loss = loss + self.pixels(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        if torch.isnan(loss):  # <-
            raise ValueError
",
    );
}

#[test]
fn batches_that_a_library_places_lie_on_the_device() {
    let script = "import torch
from torch.utils.data import DataLoader
from lightning import Fabric

def fit(fabric, model, optimizer, loader: DataLoader):
    seen = 0
    for batch in loader:
        seen += batch['length'].sum().item()  # <-
        loss = model(batch['tokens'])
        fabric.backward(loss)
        optimizer.step()
";
    check("TP101", script);
    let by_hand =
        script.replace("from lightning import Fabric\n", "").replace("fabric.backward(loss)", "loss.backward()");
    check("TP101", &by_hand.replace("batch['tokens'])", "batch['tokens'].cuda())").replace("  # <-", ""));
}

#[test]
fn what_numpy_takes_lies_on_the_host_already() {
    let script = "import torch

def train(model, loader, optimizer, device=None):
    for x in loader:
        loss = model(x.to(device))
        loss.backward()
        optimizer.step()
        total = loss.detach().cpu().numpy()  # <-
";
    check("TP102", script);
    check("TP102", &script.replace(".cpu().numpy()  # <-", ".numpy()"));
}

#[test]
fn eval_at_the_very_end_of_a_step_evaluates_nothing() {
    let script = "import torch

class Learner:
    def learn(self, x, y):
        self.net.train()
        loss = self.criterion(self.net(x.cuda()), y.cuda())
        loss.backward()
        self.optimizer.step()
        self.net.eval()
        return loss.item()  # <-
";
    check("TP101", script);
    // A second run of the model belongs to the step as well, unless it is under `no_grad`.
    check("TP101", &script.replace("return loss.item()", "return self.net(x).item()"));
    let apart = "with torch.no_grad():\n            shown = self.net(x).item()\n        return shown";
    check("TP101", &script.replace("return loss.item()  # <-", apart));
}

#[test]
fn a_dataset_of_tensors_gains_nothing_from_workers_and_others_do() {
    let script = "import torch
from torch.utils import data

def train(model, optimizer, x, y):
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=8)  # <-
    for a, b in loader:
        loss = (model(a.cuda()) - b.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
";
    check("TP301", &script.replace("TensorDataset(x, y)", "Pictures(x, y)"));
    check("TP301", &script.replace("  # <-", ""));
    check("TP301", &script.replace("TensorDataset(x, y)", "TensorDataset(x.cuda(), y.cuda())").replace("  # <-", ""));
}

#[test]
fn whether_something_exists_is_answered_by_the_host() {
    check(
        "TP104",
        "import torch
from torch import nn
from somewhere import exists

class Layer(nn.Module):
    def forward(self, x, mask, cache):
        if exists(mask):
            x = x * mask
        if not cache.is_recording(0):
            x = x + 1
        if (x > 3).any():  # <-
            x = x.clamp(max=3)
        return x.cuda()
",
    );
}

#[test]
fn sizes_taken_from_a_starred_shape_are_sizes() {
    check(
        "TP201",
        "import torch
from torch import nn

class Layer(nn.Module):
    def forward(self, x):
        b, n, d, device = *x.shape, x.device
        at = torch.arange(d // 2, device=device)  # <-
        where = torch.arange(n, device=device)  # <-
        chosen = torch.full((b, n), x.max(), device=device)
        return (x[..., at] + where + chosen).cuda()
",
    );
}

#[test]
fn parts_of_a_dataset_are_read_by_loaders_too() {
    check(
        "TP301",
        "import torch
from torch.utils.data import DataLoader, random_split

def loaders(dataset, batch_size):
    train, valid = random_split(dataset, [8, 2])
    return (
        DataLoader(train, batch_size=batch_size, pin_memory=True),  # <-
        DataLoader(valid, batch_size=batch_size, num_workers=4, pin_memory=True),
    )
",
    );
}

#[test]
fn guards_that_are_seldom_true_cool_what_is_under_them() {
    let guards = [
        "if step % 100 == 0:",
        "if not step % 100:",
        "if (step + 1) % args.log_every == 0 or step == len(loader) - 1:",
        "if step % 100 == 0 and args.rank == 0:",
        "if step == 0:",
        "if time.time() - last > 10:",
        "if verbose:",
        "if args.debug:",
        "if meter is not None:",
        "if first:\n            first = False",
        "if best is None:\n            best = loss.item()",
        "if torch.cuda.is_available() and step in (0, 10, 100):",
    ];
    for guard in guards {
        check("TP101", &step_with(&format!("        {guard}\n            print(loss.item())\n")));
    }
    check(
        "TP101",
        &step_with("        log_now = step % 10 == 0\n        if log_now:\n            print(loss.item())\n"),
    );
    check("TP101", &step_with("        if step % 10 != 0:\n            continue\n        print(loss.item())\n"));
    check(
        "TP101",
        &step_with(
            "        if step % 10 == 0:\n            pass\n        elif args.rank:\n            print(loss.item())\n",
        ),
    );
}

#[test]
fn guards_that_are_often_true_cool_nothing() {
    let guards = [
        "if step % 1 == 0:",
        "if args.rank == 0:",
        "if step > 10:",
        "if step % 10:",
        "if step % 10 != 0:",
        "if isinstance(loss, torch.Tensor):",
        "if not verbose:",
    ];
    for guard in guards {
        check("TP101", &step_with(&format!("        {guard}\n            print(loss.item())  # <-\n")));
    }
    check(
        "TP101",
        &step_with(
            "        if step % 10 == 0:\n            pass\n        else:\n            print(loss.item())  # <-\n",
        ),
    );
}

#[test]
fn a_guard_around_the_training_itself_cools_nothing() {
    check(
        "TP101",
        "import torch\n\ndef train(q, buffer, optimizer, env):\n    for step in range(100000):\n        env.step(0)\n        if step % 4 == 0:\n            loss = q(buffer.sample().cuda()).mean()\n            loss.backward()\n            optimizer.step()\n            print(loss.item())  # <-\n            if step % 100 == 0:\n                print(loss.item())\n",
    );
}

#[test]
fn handlers_and_branches_that_end_the_run_are_cold() {
    check(
        "TP101",
        &step_with("        try:\n            pass\n        except RuntimeError:\n            print(loss.item())\n"),
    );
    check("TP101", &step_with("        if args.stop:\n            print(loss.item())\n            raise SystemExit\n"));
    check("TP101", &step_with("        if args.stop:\n            print(loss.item())\n            break\n"));
}

#[test]
fn no_grad_around_a_loop_evaluates_and_around_a_part_of_a_step_does_not() {
    let script = "import torch\n\ndef measure(model, x):\n    return model(x.cuda()).sum().item()\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        model(x.cuda()).mean().backward()\n        optimizer.step()\n        with torch.no_grad():\n            measure(model, x)\n";
    check("TP101", &script.replace(".item()\n", ".item()  # <-\n"));
    let looped = script.replace(
        "            measure(model, x)\n",
        "            for y in held_out:\n                measure(model, y)\n",
    );
    check("TP101", &looped);
}

#[test]
fn per_epoch_code_is_cold_and_helpers_of_steps_are_hot() {
    check(
        "TP101",
        "import torch\n\nclass Trainer:\n    def step(self, x):\n        loss = self.model(x.cuda()).mean()\n        loss.backward()\n        self.optimizer.step()\n        return self.note(loss)\n\n    def note(self, loss):\n        return loss.item()  # <-\n\n    def fit(self, loader):\n        for epoch in range(3):\n            for x in loader:\n                last = self.step(x)\n            total = self.model.weight.sum().item()\n",
    );
}

#[test]
fn helpers_are_followed_into_other_files() {
    let train = "import torch\nfrom helpers import shown\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x.cuda()).mean()\n        loss.backward()\n        optimizer.step()\n        shown(loss)\n";
    check_files("TP101", &[("helpers.py", "def shown(loss):\n    return loss.item()  # <-\n"), ("train.py", train)]);
}

#[test]
fn values_that_are_not_on_the_device_are_not_read_back() {
    let lines = [
        "n = int(x.shape[0])",
        "n = float(step) / len(loader)",
        "import numpy as np\n        m = np.mean([1, 2]).item()",
        "k = torch.randint(0, 10, (1,)).item()",
        "c = y.cpu\n        d = int(args.n)",
    ];
    for line in lines {
        check("TP101", &step_with(&format!("        {line}\n")));
    }
}

#[test]
fn values_reached_through_a_return_and_a_tuple_are_followed() {
    check(
        "TP101",
        "import torch\n\ndef losses(model, x):\n    out = model(x)\n    return out.mean(), out.std()\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss, spread = losses(model, x.cuda())\n        loss.backward()\n        optimizer.step()\n        a = float(spread)  # <-\n",
    );
}

#[test]
fn a_script_that_never_touches_a_device_is_silent() {
    check(
        "TP101",
        "import torch\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x).mean()\n        loss.backward()\n        optimizer.step()\n        print(loss.item())\n",
    );
}

#[test]
fn loops_over_optimizers_are_part_of_the_step() {
    check(
        "TP101",
        "import torch\n\ndef train(model, loader, optimizers):\n    for epoch in range(3):\n        for x in loader:\n            loss = model(x.cuda()).mean()\n            for optimizer in optimizers:\n                loss.backward()\n                optimizer.step()\n            print(loss.item())  # <-\n        print(loss.item())\n",
    );
}

#[test]
fn lightning_and_closures_are_steps() {
    check(
        "TP101",
        "import torch\nimport lightning as L\n\nclass Net(L.LightningModule):\n    def training_step(self, batch, batch_idx):\n        loss = self.net(batch).mean()\n        self.seen = loss.item()  # <-\n        return loss\n\n    def validation_step(self, batch, batch_idx):\n        return self.net(batch).mean().item()\n",
    );
    check(
        "TP101",
        "import torch\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        def closure():\n            loss = model(x.cuda()).mean()\n            loss.backward()\n            print(loss.item())  # <-\n            return loss\n        optimizer.step(closure)\n",
    );
}

#[test]
fn loader_rules_follow_imports_dictionaries_and_parameters() {
    let used = "\n    for x in loader:\n        model(x.cuda()).mean().backward()\n        optimizer.step()\n";
    let with = |head: &str, made: &str| {
        format!("import torch\n{head}\n\ndef train(model, data, optimizer, **rest):\n    {made}{used}")
    };
    let torch_loader = "from torch.utils.data import DataLoader as Batches";
    check("TP301", &with(torch_loader, "loader = Batches(data, batch_size=4)  # <-"));
    check("TP301", &with(torch_loader, "loader = Batches(data, 4, True, None, None, 2)"));
    check("TP301", &with(torch_loader, "loader = Batches(data, **rest)"));
    check("TP301", &with(torch_loader, "kw = dict(num_workers=4)\n    loader = Batches(data, **kw)"));
    check(
        "TP301",
        &with(
            torch_loader,
            "kw = {}\n    if rest:\n        kw.update({\"num_workers\": 4})\n    loader = Batches(data, **kw)",
        ),
    );
    check("TP301", &with(torch_loader, "kw = {\"batch_size\": 4}\n    loader = Batches(data, **kw)  # <-"));
    check("TP301", &with("from torch_geometric.loader import DataLoader", "loader = DataLoader(data)  # <-"));
}
