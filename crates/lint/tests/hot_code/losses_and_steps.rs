//! Losses identified by their backward pass, steps overridden in derived classes, and look-alikes of both.

use super::{check, step_with};

/// A loss from an unknown library.
const UNKNOWN_LOSS: &str = "import torch
from somewhere import losses

def train(batches, policy, optimizer):
    for batch in batches(torch.device('cuda')):
        loss, extra = losses.compute(policy, batch)
        print(f'{loss}')  # <-
        print(f'{extra}')
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print('%.3f' % loss)  # <-
        print('{:.3f}'.format(loss))  # <-
        print(str(loss))  # <-
        print(str(extra))
";

#[test]
fn what_a_backward_pass_starts_from_is_a_loss_wherever_it_came_from() {
    check("TP103", UNKNOWN_LOSS);
    check("TP103", &UNKNOWN_LOSS.replace("loss.backward()", "scaler.scale(loss / 4).backward()"));
    check("TP103", &UNKNOWN_LOSS.replace("loss.backward()", "accelerator.backward(loss)"));
    check("TP103", &UNKNOWN_LOSS.replace("loss.backward()", "(loss + 0.1 * extra.mean()).backward()"));
    // Without its own backward pass nothing is known about it.
    check("TP103", &UNKNOWN_LOSS.replace("loss.backward()", "policy.loss.backward()").replace("  # <-", ""));
}

#[test]
fn a_loss_that_an_object_keeps_is_one_too() {
    let script = "import torch

class Trainer:
    def __init__(self, losses, device):
        self.losses, self.device = losses, device

    def train(self, bar):
        for self.iteration in bar:
            self.calculate()
            self.losses['total'].backward()
            self.optimizer.step()
            bar.set_description('%.5f' % self.losses['total'])  # <-
            bar.set_postfix(step=self.iteration)
";
    check("TP103", script);
}

/// An epoch whose update is implemented by derived classes.
const OPEN_METHOD: &str = "import torch

class Epoch:
    def batch_update(self, x, y):
        raise NotImplementedError

    def run(self, loader):
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            loss, out = self.batch_update(x, y)
            value = loss.cpu().detach().numpy()  # <-
        return value


class TrainEpoch(Epoch):
    def batch_update(self, x, y):
        self.optimizer.zero_grad()
        out = self.model(x)
        loss = self.loss(out, y)
        loss.backward()
        self.optimizer.step()
        shown = out.cpu()  # <-
        return loss, out


class ValidEpoch(Epoch):
    def batch_update(self, x, y):
        with torch.no_grad():
            out = self.model(x)
            shown = out.cpu()
        return self.loss(out, y), out
";

#[test]
fn a_method_left_open_runs_as_derived_classes_write_it() {
    check("TP102", OPEN_METHOD);
    // A method with a body of its own is what runs.
    let closed = OPEN_METHOD.replace("raise NotImplementedError", "return self.model(x), y");
    check("TP102", &closed.replace("numpy()  # <-", "numpy()"));
}

#[test]
fn a_step_left_open_by_its_name_makes_its_loop_one_of_steps() {
    let script = "import torch

class Trainer:
    def train_step(self, batch):
        raise NotImplementedError

    def fit(self, loader):
        for batch in loader:
            loss = self.train_step(batch.to(self.device))
            print(loss.item())  # <-
        print(loss.item())
";
    check("TP101", script);
    check("TP101", &script.replace("train_step", "describe").replace("  # <-", ""));
}

#[test]
fn a_static_method_has_no_object_before_its_arguments() {
    check(
        "TP104",
        "import torch

class Model:
    @staticmethod
    def mapped(batch):
        return {'words': batch[0], 'known': batch[1]}

    def train(self, loader):
        for batch in loader:
            batch = tuple(part.to(self.device) for part in batch)
            inputs = self.mapped(batch)
            self.model(**inputs).mean().backward()
            self.optimizer.step()
            for at, is_known in enumerate(inputs['known']):
                if not is_known:  # <-
                    self.missing = at
            if not inputs:
                continue
",
    );
}

#[test]
fn fetching_from_a_device_tells_that_there_is_one() {
    let script = "import torch

def update(policy, optimizer, batch):
    loss = policy(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().cpu().numpy()  # <-
";
    check("TP102", script);
    check("TP102", &script.replace(".cpu().numpy()  # <-", ".numpy()"));
    check("TP102", &format!("{}\ndevice = torch.device('cpu')\n", script.replace("  # <-", "")));
}

#[test]
fn gradients_that_another_applies_are_a_step() {
    let script = "import torch

class Learner:
    def compute_gradients(self, batch):
        loss = self.actor(batch.to(self.device)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        return {'loss': loss.detach().item()}  # <-
";
    check("TP101", script);
    // Gradients of an input are not training.
    check("TP101", &script.replace("self.optimizer", "self.actor").replace("  # <-", ""));
}

#[test]
fn an_evaluation_that_asks_for_gradients_stays_one() {
    let script = "import torch

class Explained:
    def predict(self, inputs):
        for x in inputs:
            out = self.model(x.to(self.device))
            out.max().backward()
            self.seen.append(out.cpu())
";
    check("TP102", script);
    let adapts = "            self.optimizer.step()\n            self.seen.append(out.cpu())  # <-";
    check("TP102", &script.replace("            self.seen.append(out.cpu())", adapts));
}

#[test]
fn a_closure_called_to_look_at_its_result_trains_nothing() {
    check(
        "TP101",
        "import torch

def fit(model, x):
    optimizer = torch.optim.LBFGS(model.parameters())
    for step in range(100):
        def closure():
            optimizer.zero_grad()
            loss = model(x.cuda()).mean()
            loss.backward()
            return loss

        last = optimizer.step(closure)
        print(last.item())  # <-
        if step % 50 == 0:
            print(closure().item())
",
    );
}

#[test]
fn warnings_and_branches_for_what_is_no_number_are_cold() {
    check(
        "TP103",
        &step_with("        import warnings\n        warnings.warn(f'{loss}')\n        print(f'{loss}')  # <-\n"),
    );
    for test in [
        "torch.isnan(loss)",
        "torch.isnan(loss).any()",
        "not torch.isfinite(loss)",
        "not torch.all(torch.isfinite(out))",
    ] {
        let body = format!("        if {test}:\n            print('labels', y)\n            continue\n");
        check("TP103", &step_with(&body));
        check("TP104", &step_with(&body.replace(":\n            print", ":  # <-\n            print")));
    }
    check("TP103", &step_with("        if torch.any(y):\n            print('labels', y)  # <-\n"));
}

#[test]
fn a_threshold_that_its_branch_moves_on_is_a_cadence() {
    let moved = "        seen = step * 8\n        if seen >= args.next_log:\n            print(loss.item())\n            args.next_log += 100\n";
    check("TP101", &step_with(moved));
    let reset =
        "        best = best + 1\n        if best > 50:\n            print(loss.item())\n            best = 0\n";
    check("TP101", &step_with(reset));
    let fixed =
        "        best = best + 1\n        if best > 50:\n            print(loss.item())  # <-\n            first = 0\n";
    check("TP101", &step_with(fixed));
}

#[test]
fn a_comparison_with_methods_is_a_tensor() {
    check(
        "TP101",
        "import torch
from somewhere import step

def train(batches, optimizer):
    right = 0
    for batch in batches(torch.device('cuda')):
        predicted, labels, loss = step(batch)
        loss.backward()
        optimizer.step()
        right += (predicted == labels).sum().item()  # <-
        right += int(predicted is labels)
",
    );
}

#[test]
fn sizes_and_settings_of_a_forward_are_asked_of_the_host() {
    check(
        "TP104",
        "import torch
from typing import Optional
from torch import nn

class Merging(nn.Module):
    def forward(self, x, H, W, outputs, first_layer: Optional[int] = None):
        assert x.shape[1] == H * W
        if H % 2 == 1 or W % 2 == 1:
            x = x[:, 1:]
        if x.type() != self.weight.type():
            x = x.float()
        if outputs.get('aux'):
            x = x + 1
        if x.max() > 3:  # <-
            x = x * 2
        return self.begin(x, first_layer)

    def begin(self, x, first_layer: int):
        if first_layer < 0:
            x = x[:first_layer]
        return x
",
    );
}

#[test]
fn a_teacher_held_still_beside_its_student_is_no_evaluation() {
    let script = "import torch

def distill(student, teacher, loader, optimizer, epochs):
    for epoch in range(epochs):
        student.train()
        teacher.eval()
        for x in loader:
            loss = (student(x.cuda()) - teacher(x.cuda())).mean()
            loss.backward()
            optimizer.step()
            print(loss.item())  # <-
        student.eval()
        for x in loader:
            print(student(x.cuda()).mean().item())
";
    check("TP101", script);
}

#[test]
fn a_target_held_still_before_the_loop_leaves_the_loop_one_of_steps() {
    let script = "import torch

def learn(policy, target, batches, optimizer):
    target.eval()
    for x in batches:
        loss = (policy(x.cuda()) - target(x.cuda())).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())  # <-
";
    check("TP101", script);
    // Gradients of an input, for a model that is evaluated.
    check("TP101", &script.replace("        optimizer.step()\n", "").replace("  # <-", ""));
}

#[test]
fn counters_that_come_back_with_a_model_are_numbers() {
    check(
        "TP104",
        "import torch
import library
from library import checkpoint

def train(loader, optimizer, device):
    model = library.Model().to(device)
    model, optimizer, state = checkpoint.load(model, optimizer)
    step, limit = state['step'], state['limit']
    for x in loader:
        loss = model(x.to(device)).mean()
        loss.backward()
        optimizer.step()
        if step >= limit:
            print('done')
        if loss > limit:  # <-
            print('high')
        step += 1
",
    );
}
