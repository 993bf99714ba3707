"""A speech recogniser that runs a backward for its CTC loss and one for its decoder's. Fixed: one, of their sum."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
small = arguments.small
layers, after, width, heads, batch, frames, words = (2, 1, 32, 4, 2, 64, 4) if small else (12, 4, 512, 8, 64, 1600, 64)
vocabulary, BANDS, STACKED, BATCHES, FOR_CTC = (64 if small else 1024), 80, 4, 4, 0.3
shape = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}


class Recogniser(nn.Module):
    """An encoder of sounds, read by a CTC head and by a decoder that writes the words."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(BANDS * STACKED, width)
        self.places = nn.Parameter(0.02 * torch.randn(frames // STACKED, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, **shape)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.ctc = nn.Linear(width, vocabulary)
        self.words, self.word_places = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(words, width))
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, **shape)
        self.decoder = nn.TransformerDecoder(layer, after, nn.LayerNorm(width))
        self.leave = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(words))

    def forward(self, sounds, said):
        heard = self.encoder(self.enter(sounds.unflatten(1, (-1, STACKED)).flatten(2)) + self.places)
        written = self.words(said) + self.word_places
        written = self.decoder(written, heard, tgt_mask=self.mask, tgt_is_causal=True)
        return self.ctc(heard), self.leave(written)


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
sounds = torch.randn(BATCHES, batch, frames, BANDS, generator=generator, device=device)
spoken = torch.randint(1, vocabulary, (BATCHES, batch, words + 1), generator=generator, device=device)
long, short = (frames // STACKED,) * batch, (words,) * batch
model = Recogniser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    said, following = spoken[step % BATCHES, :, :-1], spoken[step % BATCHES, :, 1:]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        by_frame, by_word = model(sounds[step % BATCHES], said)
    log_chances = functional.log_softmax(by_frame.float(), dim=-1).transpose(0, 1)
    ctc = functional.ctc_loss(log_chances, following.contiguous(), long, short, zero_infinity=True)
    decoded = functional.cross_entropy(by_word.float().flatten(0, 1), following.flatten())
    if arguments.fixed:
        (FOR_CTC * ctc + (1 - FOR_CTC) * decoded).backward()
    else:
        (FOR_CTC * ctc).backward(retain_graph=True)
        ((1 - FOR_CTC) * decoded).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} ctc {ctc.item():.4f} decoder {decoded.item():.4f}")
