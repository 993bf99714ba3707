//! Values that are reached indirectly: masks and methods by name, utilities, properties, old idioms.

use super::{check, check_files};

const STEP: &str = "
def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
";

#[test]
fn masks_are_masks_by_their_names_and_by_comparison() {
    let model = "import torch
from torch import nn

class Model(nn.Module):
    def forward(self, batch, flow, mask, picked_idx):
        kept = torch.norm(flow, 2, 1)[mask]  # <-
        rows = batch['ids'][batch['kept'] > 0]  # <-
        columns = flow[:, mask]  # <-
        places = flow[picked_idx]
        flow[mask] = 0
        return kept.mean() + rows.mean() + columns.mean() + places.mean()
";
    check("TP106", &format!("{model}{STEP}"));
}

#[test]
fn a_mask_of_the_device_picks_from_the_device() {
    check(
        "TP106",
        "import torch

def train(model, loader, optimizer, store):
    for x, y in loader:
        y = y.cuda()
        scores = store.last
        hard = y.lt(10)
        picked = scores[hard]  # <-
        other = store.second.masked_select(hard)  # <-
        loss = model(x.cuda(), picked, other)
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn what_has_an_item_is_not_a_size_or_a_module() {
    check(
        "TP101",
        "import torch

def train(model, loader, optimizer, store):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(store.policy_loss.item())  # <-
        print(store.seq_len.item())  # <-
",
    );
}

#[test]
fn lengths_that_are_copied_back_are_tensors() {
    let model = "import torch
from torch import nn

def binarize(T, classes):
    return T.cpu().numpy() == classes  # <-

class Model(nn.Module):
    def forward(self, x, y):
        return (x * torch.cosine_similarity(x, binarize(self.labels.last, 9))).mean()
";
    check("TP102", &format!("{model}{STEP}"));
}

#[test]
fn a_range_over_a_number_of_the_device_reads_it() {
    let model = "import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        counts = torch.max(y, dim=0)[0]
        last = counts[-1] + 1
        total = x.sum()
        for at in range(last):  # <-
            total = total + x[at].sum()
        return total
";
    check("TP101", &format!("{model}{STEP}"));
}

#[test]
fn a_property_is_read_where_it_also_has_a_setter() {
    let model = "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('ratio', torch.ones(1))

    @property
    def rate(self):
        return self.ratio.item()  # <-

    @rate.setter
    def rate(self, value):
        self.ratio = self.ratio.new_tensor(value)

    def forward(self, x, y):
        return (x * self.rate).mean()
";
    check("TP101", &format!("{model}{STEP}"));
}

#[test]
fn metrics_chosen_by_name_are_all_of_a_file() {
    let metrics = "import torch

def accuracy(output, target):
    return (output.argmax(1) == target).sum().item()  # <-

def second(output, target):
    return (output.argmin(1) == target).sum().item()  # <-
";
    let train = "import torch
import metrics

def train(model, loader, optimizer, config):
    measures = [getattr(metrics, name) for name in config['metrics']]
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        output = model(x)
        loss = torch.nn.functional.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        for measure in measures:
            measure(output, y)
";
    check_files("TP101", &[("metrics.py", metrics), ("train.py", train)]);
}

#[test]
fn a_key_of_a_batch_is_not_a_phase() {
    check(
        "TP101",
        "import torch

def outer(model, batch):
    if 'test' not in batch:
        raise RuntimeError('no test')
    loss = model(batch['train'].cuda()).mean()
    print(loss.item())  # <-
    return loss

def train(model, loader, optimizer):
    for batch in loader:
        loss = outer(model, batch)
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn checks_of_a_forward_run_at_every_step() {
    check(
        "TP104",
        "import torch
from torch import nn

class Field(nn.Module):
    def forward(self, emissions, mask):
        self._validate(emissions, mask)
        return emissions.mean()

    def _validate(self, emissions, mask):
        whole = self.flag and mask[0].all()
        if not whole:  # <-
            raise ValueError('the first must be on')

def train(model, loader, optimizer):
    field = Field()
    for x, y in loader:
        loss = field(model(x.cuda()), (y > 0).cuda())
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn a_method_that_only_modules_have_is_theirs() {
    check(
        "TP105",
        "import torch
from torch import nn

class One(nn.Module):
    def gen_update(self, x):
        loss = self.net(x).mean()
        loss.backward()
        self.gen_opt.step()

class Two(nn.Module):
    def gen_update(self, x):
        loss = self.net(x).sum()
        loss.backward()
        self.gen_opt.step()

def main(args, loader):
    if args.one:
        trainer = One()
    else:
        trainer = Two()
    for x in loader:
        trainer.gen_update(x.cuda())
        torch.cuda.synchronize()  # <-
",
    );
}

#[test]
fn a_tool_that_copies_back_is_named_beside_its_callers() {
    check(
        "TP102",
        "import torch

def to_numpy(x):
    if isinstance(x, torch.Tensor):
        return x.detach().cpu().numpy()  # <-
    return x

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(to_numpy(loss))  # <-
",
    );
}

#[test]
fn numbers_were_once_read_by_their_data() {
    check(
        "TP101",
        "import torch

def train(model, loader, optimizer, criterion):
    for x, y in loader:
        out = model(x.cuda())
        loss = criterion(out, y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.data[0], out.mean().data[0])  # <-
        first = out.data[0]
",
    );
}

#[test]
fn writing_into_a_difference_leaves_the_constant() {
    let model = "import torch
from torch import nn

class Loss(nn.Module):
    def forward(self, a, b):
        c = torch.mm(a.T, b)
        n = c.size(0)
        errors = (c - torch.eye(n, device=c.device)).pow(2)  # <-
        errors[~torch.eye(n, dtype=bool)] *= 0.5  # <-
        return errors.sum()
";
    check("TP201", &format!("{model}{STEP}"));
}

#[test]
fn made_on_the_host_and_moved_to_another() {
    check(
        "TP202",
        "import torch

def bits(x, model):
    start = torch.zeros(x.shape[0], 1).to(x)  # <-
    noise = torch.empty(x.shape).normal_(mean=0, std=model.std()).cuda()  # <-
    return model(x, start + noise).mean()

def train(model, loader, optimizer):
    for x in loader:
        x = fetch(x)
        loss = bits(x, model)
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn a_loss_that_holds_the_model_still_is_a_loss() {
    check(
        "TP202",
        "import torch

def robust_loss(model, x, y):
    model.eval()
    noise = torch.randn(x.shape).cuda()  # <-
    return torch.nn.functional.cross_entropy(model(x + noise), y)

def train(model, loader, optimizer):
    for x, y in loader:
        loss = robust_loss(model, x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn adversaries_are_looked_for_within_a_step() {
    check(
        "TP202",
        "import torch

def perturb(model, x, y):
    model.eval()
    found = x.detach() + 0.001 * torch.randn(x.shape).cuda()  # <-
    for _ in range(9):
        found.requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(found), y)
        grad = torch.autograd.grad(loss, [found])[0]
        found = found.detach() + 0.01 * torch.sign(grad)
    return found

def train(model, loader, optimizer):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        found = perturb(model, x, y)
        model.train()
        loss = torch.nn.functional.cross_entropy(model(found), y)
        loss.backward()
        optimizer.step()
",
    );
}

#[test]
fn what_is_asked_to_be_a_tensor_is_one() {
    check(
        "TP102",
        "import numpy as np
import torch

def flat(data):
    if isinstance(data, torch.Tensor):
        data = data.cpu().data.numpy()  # <-
    return data.flatten()

def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        measure(flat(loader.last.kept), flat(np.arange(9)))
",
    );
}

/// A loop of steps that hands its loss to `f0`, which calls `f1`, …; the last one ends with `last`.
fn helpers(depth: usize, last: &str) -> String {
    let link = |at: usize| match at + 1 == depth {
        true => format!("def f{at}(x):\n    {last}\n\n"),
        false => format!("def f{at}(x):\n    return f{}(x)\n\n", at + 1),
    };
    let all: String = (0..depth).map(link).collect();
    format!(
        "import torch\n\n{all}def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
        print(f0(loss))
"
    )
}

#[test]
fn a_read_is_found_however_many_helpers_are_between() {
    for depth in [1, 2, 3, 7, 20] {
        check("TP101", &helpers(depth, "return x.mean().item()  # <-"));
    }
}

#[test]
fn a_helper_that_moves_its_argument_moves_it_for_every_caller() {
    for depth in [1, 2, 3, 7] {
        // Moved back by the helpers, it is on the host where it is read.
        let host = helpers(depth, "return x.detach().cpu()").replace("print(f0(loss))", "print(f0(loss).item())");
        check("TP101", &host);
        let device = helpers(depth, "return x.cuda()").replace("print(f0(loss))", "print(f0(y).item())  # <-");
        check("TP101", &device);
    }
}

#[test]
fn a_copy_is_charged_to_the_line_that_asks_for_it_through_all_helpers() {
    for depth in [1, 2, 3, 7] {
        let script = helpers(depth, "return x.detach().cpu()").replace("print(f0(loss))", "kept.append(f0(out))  # <-");
        check("TP102", &script.replace("loss = model(x.cuda(), y.cuda())", "out, loss = model(x.cuda(), y.cuda())"));
    }
    // Functions that call each other forever copy nothing.
    check("TP102", &helpers(2, "return f0(x)"));
}

/// Only random numbers on the host tell that what they combine with is on the host too.
#[test]
fn host_data_combines_with_an_argument_on_the_device() {
    check(
        "TP101",
        "import torch
from torch import nn

class Model(nn.Module):
    def forward(self, features):
        scale = torch.tensor([0.5, 2.0])
        noise = torch.randn(2)
        top = (features * scale).max().item()  # <-
        low = (features * noise).min().item()
        return features.mean() * top * low
",
    );
}

#[test]
fn a_mask_that_a_function_of_torch_makes_is_one() {
    check(
        "TP106",
        "import torch

def train(model, loader, optimizer):
    for x, y in loader:
        scores = model(x.cuda())
        hard = torch.gt(scores, 0.5)
        picked = scores[hard]  # <-
        above = torch.add(scores, 0.5)
        others = scores[above.long()]
        loss = picked.mean() + others.mean()
        loss.backward()
        optimizer.step()
",
    );
}
