//! Code that is written differently but is the same, and code that looks the same but is not.

use super::{check, step_with};

#[test]
fn a_device_is_one_under_any_name() {
    for name in ["self._device", "self.main_device", "device"] {
        let script = format!(
            "import torch
from torch import nn

class Agent(Base):
    def setup(self):
        self.critic = nn.Linear(4, 1).to({name})
        self.optimizer = torch.optim.Adam(self.critic.parameters())

    def _train(self, batch):
        self._update_critic(batch)

    def _update_critic(self, batch):
        loss = nn.functional.mse_loss(self.critic(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        self.logger.store(**{{'loss': loss.item()}})  # <-
"
        );
        check("TP101", &script);
    }
}

#[test]
fn a_property_that_is_read_at_every_step_runs_at_every_step() {
    check(
        "TP101",
        "import torch

class Agent:
    @property
    def alpha(self):
        return self.log_alpha.exp().item()  # <-

    @property
    def temperature(self):
        return self.log_alpha.exp().item()

    def train(self, loader, model, optimizer, criterion):
        self.log_alpha = torch.zeros(1, device='cuda')
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda()) * self.alpha
            loss.backward()
            optimizer.step()
        print(self.temperature)
",
    );
}

#[test]
fn batches_that_a_comprehension_goes_over_are_steps() {
    check(
        "TP102",
        "import torch

def one_batch(model, criterion, x, y, optimizer):
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach().cpu()  # <-

def metrics(model, loader):
    return torch.cat([model(x.cuda()) for x, y in loader]).cpu()

def fit(model, criterion, optimizer, train_loader, epochs):
    for epoch in range(epochs):
        losses = [one_batch(model, criterion, x.cuda(), y.cuda(), optimizer) for x, y in train_loader]
        print(metrics(model, train_loader))
",
    );
}

#[test]
fn a_meter_is_one_by_what_made_it() {
    let script = step_with("        top1.update(out.mean(), 8)  # <-\n        seen.update(out.mean(), 8)\n");
    let script = script.replace("import time\n", "import time\nfrom utils import AverageMeter, Window\n");
    let made = "    first = True\n    top1 = AverageMeter('acc')\n    seen = Window('acc')\n";
    check("TP103", &script.replace("    first = True\n", made));
}

#[test]
fn values_put_into_a_text_are_reported_where_they_stand() {
    check(
        "TP103",
        &step_with("        print('{} {}'.format(\n            step,\n            out.mean(),  # <-\n        ))\n"),
    );
}

#[test]
fn a_dictionary_that_a_helper_adds_to_holds_what_was_added() {
    let body = "        logs = {}
        add_to(logs, {'loss': loss.detach(), 'step': step})
        print(f\"{logs['step']}\")
        print(f\"{logs['loss']}\")  # <-
";
    check("TP103", &step_with(body));
}

#[test]
fn a_loss_that_has_to_be_asked_for_is_asked_for_when_training() {
    check(
        "TP201",
        "import torch
from torch import nn

class Contrast(nn.Module):
    def forward(self, x, return_loss=False, debug=False):
        if debug:
            print(torch.arange(x.shape[0], device=x.device))
        if not return_loss:
            return x
        return x[torch.arange(x.shape[0], device=x.device)]  # <-
",
    );
}

#[test]
fn results_that_are_kept_are_built_once_and_masks_are_no_evaluation() {
    check(
        "TP201",
        "import functools
import torch
from torch import nn

@functools.lru_cache(maxsize=None)
def kept_mask(n):
    return torch.triu(torch.ones(n, n))

def generate_square_mask(n, device):
    return torch.triu(torch.ones(n, n, device=device))  # <-

class Block(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, x, lengths):
        places = torch.arange(self.rows * 2, device=x.device)  # <-
        out = torch.full((x.shape[0], 8), 0.0, device=x.device)
        out[:, :4] = x[:, :4]
        lower = torch.tril(torch.ones_like(x))  # <-
        upper = x.new_ones(x.shape[1], x.shape[1]).triu(1)  # <-
        return x + kept_mask(4) + generate_square_mask(x.shape[1], x.device) + places + out + lower + upper
",
    );
}

#[test]
fn workers_start_again_where_the_loop_counts_its_batches() {
    let script = "import torch
from torch.utils.data import DataLoader

def train(model, loader, optimizer, criterion):
    for step, (x, y) in enumerate(loader):
        criterion(model(x.cuda()), y.cuda()).backward()
        optimizer.step()

def main(model, data, optimizer, criterion, epochs):
    settings = {'num_workers': 2, 'pin_memory': True} if torch.cuda.is_available() else {}
    loader = DataLoader(data, batch_size=8, **settings)  # <-
    for epoch in range(epochs):
        train(model, loader, optimizer, criterion)
";
    check("TP304", script);
}

#[test]
fn a_collate_function_whose_device_is_none_leaves_the_batch_on_the_host() {
    let script = |default: &str, of_collate: &str, of_loader: &str| {
        format!(
            "import torch
from torch import nn
from torch.utils.data import DataLoader

def collate(batch, device={default}):
    return torch.as_tensor(batch, device=device){of_collate}

def main(dataset, epochs):
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(dataset, batch_size=8, collate_fn=collate){of_loader}
    for epoch in range(epochs):
        for x in loader:
            loss = model(x.cuda()).sum()
            loss.backward()
            optimizer.step()
"
        )
    };
    let mark = "  # <-";
    check("TP306", &script("None", "", ""));
    check("TP301", &script("None", "", mark));
    check("TP306", &script("'cuda'", mark, ""));
    check("TP301", &script("'cuda'", "", ""));
}

#[test]
fn lengths_by_their_usual_short_names_are_sizes() {
    check(
        "TP201",
        "import torch
from torch import nn

class Bias(nn.Module):
    def forward(self, x, qlen, klen):
        keys = torch.arange(klen, device=x.device)  # <-
        return x + self.weights(keys - torch.arange(qlen, device=x.device)[:, None])  # <-
",
    );
}

#[test]
fn what_is_returned_where_it_is_kept_already_is_made_once() {
    for ask in ["self.mask is not None and self.mask.shape[-1] >= n", "exists(self.mask)"] {
        check(
            "TP201",
            &format!(
                "import torch
from torch import nn

class Attention(nn.Module):
    def get_mask(self, n, device):
        if {ask}:
            return self.mask[:n, :n]
        mask = torch.ones((n, n), device=device).triu(1)
        self.register_buffer('mask', mask, persistent=False)
        return mask

    def get_positions(self, n, device):
        if n > 4:
            return None
        return torch.arange(n, device=device)  # <-

    def forward(self, x):
        n = x.shape[1]
        return x + self.get_mask(n, x.device) + self.get_positions(n, x.device)
"
            ),
        );
    }
}

#[test]
fn a_mask_cut_in_place_is_a_constant_too() {
    check(
        "TP201",
        "import torch
from torch import nn

class Attention(nn.Module):
    def forward(self, scores):
        i, j = scores.shape[-2:]
        mask = torch.ones(i, j, device=scores.device).triu_(j - i + 1).bool()  # <-
        return scores.masked_fill(mask, 0.0)
",
    );
}

#[test]
fn a_controller_that_says_when_to_print_is_a_cadence() {
    let print = "        if state['step_to_print']:\n            print(loss)\n        print(loss)  # <-\n";
    check("TP103", &step_with(print));
}

#[test]
fn remainders_conditions_and_signs_of_parameters_are_the_hosts() {
    check(
        "TP104",
        "import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, padding, window):
        b, n, d = pack(x).shape
        assert (n % window) == 0
        if self.cond(x):
            return x
        y = x[: (-padding) or None]
        if y.sum() > 0:  # <-
            return y
        return x
",
    );
}

#[test]
fn lightnings_own_log_is_known_by_its_options() {
    check(
        "TP103",
        "import torch

class Detector(Base):
    def training_step(self, batch, index):
        loss = self.model(batch.cuda())
        self.log('loss', loss, on_step=True, prog_bar=True)
        print(loss)  # <-
        return loss
",
    );
}

#[test]
fn a_trainer_made_with_tracking_off_tracks_for_those_who_ask() {
    for (default, mark) in [("False", ""), ("True", "  # <-")] {
        check(
            "TP101",
            &format!(
                "import torch

class Trainer:
    def __init__(self, model, optimizer, track={default}):
        self.model = model.cuda()
        self.optimizer = optimizer
        self.track = track

    def fit(self, loader):
        for x in loader:
            loss = self.model(x.cuda()).sum()
            loss.backward()
            self.optimizer.step()
            if self.track:
                remember(loss.item()){mark}
"
            ),
        );
    }
}

#[test]
fn tokens_of_a_tokenizer_are_numbers_of_the_host() {
    let script = "import torch

def inputs(teacher_tokenizer, texts, end):
    kept = []
    for ids in teacher_tokenizer(texts)['input_ids']:
        if ids[-1] == end:
            ids = ids[:-1]
        kept.append(torch.tensor(ids))
    return torch.stack(kept).cuda()

def train(model, loader, optimizer, teacher_tokenizer, end):
    for x in loader:
        hidden = model(x.cuda())
        loss = model(inputs(teacher_tokenizer, hidden, end)).mean()
        if loss > 3:  # <-
            print('large')
        loss.backward()
        optimizer.step()
";
    for name in ["teacher_tokenizer", "teacher_tok", "model_processor"] {
        check("TP104", &script.replace("teacher_tokenizer", name));
    }
}

#[test]
fn a_dataset_follows_its_batch_on_the_host() {
    let dataset = "import torch
from torch.utils.data import Dataset, DataLoader

class Pairs(Dataset):
    def __getitem__(self, at):
        return self.rows[at]

    def collater(self, samples):
        tokens = torch.nn.functional.pad(samples, (0, 1))
        language = torch.LongTensor([[self.language]]).expand(len(samples), 1).to(tokens)
        return tokens, language, torch.zeros(3).to('cuda')  # <-

def train(model, data, optimizer):
    for tokens, language in DataLoader(data, collate_fn=data.collater, num_workers=4):
        model(tokens.cuda(), language.cuda()).backward()
        optimizer.step()
";
    check("TP306", dataset);
}
