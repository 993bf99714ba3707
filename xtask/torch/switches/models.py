"""Small models in training, each a recorded step for the shadow checks: `MODELS` by name.

HEADROOM_TEST_DEVICE=cuda puts them on a GPU, where products round otherwise.
"""
import dataclasses
import importlib.util
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = os.environ.get("HEADROOM_TEST_DEVICE", "cpu")


def hook(folder):
    """The hook's own loader of parts, without starting the hook."""
    spec = importlib.util.spec_from_file_location("headroom_hook", f"{folder}/sitecustomize.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["headroom_hook"] = module
    spec.loader.exec_module(module)
    return module


class Block(nn.Module):
    """A pre-norm transformer block with attention written out."""

    def __init__(self, width, dropout, is_fused=False):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.share = dropout
        self.is_fused = is_fused

    def forward(self, x):
        b, s, d = x.shape
        normed = self.first(x)
        q, k, v = (part(normed).view(b, s, 4, d // 4).transpose(1, 2) for part in (self.query, self.key, self.value))
        if self.is_fused:
            share = self.share if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=share)
        else:
            scores = (q @ k.transpose(2, 3) / (d // 4) ** 0.5).softmax(-1)
            mixed = F.dropout(scores, self.share, self.training) @ v
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(b, s, d)))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class Language(nn.Module):
    def __init__(self, dropout=0.0, width=32, layers=3, vocabulary=96):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Images(nn.Module):
    """Convolutions with a bias before batch norm, whose gradient is zero; optionally stochastic depth."""

    def __init__(self, dropout=0.0, depth=0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.dropout = nn.Dropout2d(dropout)
        self.depth = depth
        self.head = nn.Linear(32, 10)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = self.stem(x)
        branch = self.middle(x)
        if self.depth and self.training:
            kept = x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(1 - self.depth)
            branch = branch * kept / (1 - self.depth)
        x = self.last(self.dropout(x + branch))
        return self.head(x.mean((2, 3)))


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    features: torch.Tensor


class Mixed(nn.Module):
    """Perceptron that returns an object, and has a running mean as a plain attribute."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 48), nn.Tanh())
        self.head = nn.Linear(48, 5)
        self.running = torch.zeros(48, device=DEVICE)

    def forward(self, x):
        features = self.layers(x)
        self.running = 0.9 * self.running + 0.1 * features.detach().mean(0)
        return Answer(self.head(features), features)


class MixedWithDropout(Mixed):
    def __init__(self):
        super().__init__()
        self.layers.append(nn.Dropout(0.3))


class Multihead(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=dropout, batch_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x):
        mixed, _ = self.attention(x, x, x)
        return self.head(self.norm(x + mixed))


class Diffusion(nn.Module):
    """Draws times on the host and noise on the device in its forward pass, and returns the loss. The gradient of its last
    bias, a single number, is a sum of errors whose mean is near zero."""

    def __init__(self, widths=(1, 8, 16, 8)):
        super().__init__()
        parts = []
        for narrow, wide in zip(widths, widths[1:]):
            parts += [nn.Conv2d(narrow, wide, 5, padding=2), nn.BatchNorm2d(wide), nn.LeakyReLU()]
        self.parts = nn.Sequential(*parts, nn.Conv2d(widths[-1], 1, 3, padding=1))
        self.register_buffer("shares", torch.linspace(0.99, 0.01, 100))

    def forward(self, x):
        times = torch.randint(1, 100, (len(x),)).to(x.device)
        noise = torch.randn_like(x)
        share = self.shares[times, None, None, None]
        return F.mse_loss(self.parts(share.sqrt() * x + (1 - share).sqrt() * noise), noise)


class Recurrent(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.lstm = nn.LSTM(24, 24, 2, dropout=dropout, batch_first=True)
        self.head = nn.Linear(24, 50)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Checkpointed(nn.Module):
    def __init__(self, is_reentrant):
        super().__init__()
        self.inlet = nn.Linear(24, 32)
        self.blocks = nn.ModuleList(Block(32, 0.0) for _ in range(2))
        self.head = nn.Linear(32, 8)
        self.is_reentrant = is_reentrant

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        x = self.inlet(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.is_reentrant)
        return self.head(x)


def hugging_face(kind, **settings):
    import transformers

    config = {
        "llama": lambda: transformers.LlamaConfig(
            vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, attn_implementation="eager", **settings
        ),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=32, attn_implementation="eager", **settings
        ),
    }[kind]()
    return transformers.AutoModelForCausalLM.from_config(config)


def bert(width=32, layers=2, dropout=0.0):
    """Softmax cancels the bias of its keys, whose gradient is zero but for rounding."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=96, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=2 * width,
        max_position_embeddings=64, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForMaskedLM(config)


class Step:
    """A model after two steps, with the third recorded; `context` is as at that step's end."""

    def __init__(self, parts, make, batch, loss, optimizer=None, backend="aot_eager", scaler=None):
        torch.manual_seed(0)
        self.parts, self.model, self.batch, self.loss = parts, make().to(DEVICE), batch, loss
        self.optimizer = (optimizer or (lambda those: torch.optim.AdamW(those, lr=1e-3)))(self.model.parameters())
        self.context = parts.part("context").Context(
            [self.model], [self.optimizer], facts=dict, scalers=[scaler] if scaler else [], backend=backend
        )
        self.scaler = scaler
        for _ in range(2):
            self.step()
        self.context.capture()
        self.step()
        self.context.end_capture()

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(self.model, self.batch())
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def check(self, switch):
        return self.parts.part("shadow").check(self.context, switch)


def tokens(count=96):
    return lambda: torch.randint(count, (4, 16), device=DEVICE)


def numbers(*shape):
    return lambda: torch.randn(*shape, device=DEVICE)


def language_loss(model, batch):
    logits = model(batch)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


def target_loss(model, batch):
    found = model(batch).flatten(0, -2)
    return F.cross_entropy(found, torch.arange(len(found), device=DEVICE) % 8)


def answer_loss(model, batch):
    found = model(batch)
    return F.cross_entropy(found.logits, torch.arange(len(batch), device=DEVICE) % 5) + 0.01 * found.features.pow(2).mean()


def own_loss(model, batch):
    return model(input_ids=batch, labels=batch).loss


def direct_loss(model, batch):
    return model(batch)


def in_bf16(loss):
    """The script's own autocast."""

    def inside(model, batch):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return loss(model, batch)

    return inside


MODELS = {
    "language": (Language, tokens(), language_loss),
    "language with dropout": (lambda: Language(0.1), tokens(), language_loss),
    "images": (Images, numbers(8, 3, 12, 12), target_loss),
    "images with dropout": (lambda: Images(0.2), numbers(8, 3, 12, 12), target_loss),
    "images with stochastic depth": (lambda: Images(depth=0.3), numbers(8, 3, 12, 12), target_loss),
    "mixed": (Mixed, numbers(16, 24), answer_loss),
    "images in bf16": (Images, numbers(8, 3, 12, 12), in_bf16(target_loss)),
    "llama in bf16": (lambda: hugging_face("llama"), tokens(), in_bf16(own_loss)),
    "llama of bf16 weights": (lambda: hugging_face("llama").bfloat16(), tokens(), own_loss),
    "multihead": (Multihead, numbers(4, 10, 32), target_loss),
    "multihead with dropout": (lambda: Multihead(0.1), numbers(4, 10, 32), target_loss),
    "diffusion": (Diffusion, numbers(8, 1, 12, 12), direct_loss),
    "bert": (bert, tokens(), own_loss),
    "bert with dropout": (lambda: bert(dropout=0.1), tokens(), own_loss),
    "bert in bf16": (bert, tokens(), in_bf16(own_loss)),
    "recurrent": (Recurrent, tokens(50), language_loss),
    "recurrent with dropout": (lambda: Recurrent(0.2), tokens(50), language_loss),
    "checkpointed": (lambda: Checkpointed(False), numbers(4, 10, 24), target_loss),
    "checkpointed, reentrant": (lambda: Checkpointed(True), numbers(4, 10, 24), target_loss),
    "llama": (lambda: hugging_face("llama"), tokens(), own_loss),
    "gpt2": (lambda: hugging_face("gpt2"), tokens(), own_loss),
    "gpt2 without dropout": (
        lambda: hugging_face("gpt2", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0), tokens(), own_loss
    ),
}


def made(parts, name, **settings):
    make, batch, loss = MODELS[name]
    return Step(parts, make, batch, loss, **settings)
