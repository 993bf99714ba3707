"""Accelerate over preference pairs whose reference model, only set to eval(), is differentiated too. Fixed: no_grad."""
import argparse
import contextlib
import copy

import torch
from accelerate import Accelerator
from torch.nn import functional
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, pairs, length = (2, 64, 4, 512, 2, 32) if arguments.small else (12, 1024, 16, 16384, 8, 384)
BETA = 0.1


class Preferences(torch.utils.data.Dataset):
    """A prompt with the answer that was preferred and the one that was not."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        prompts = torch.randint(0, vocabulary, (256, 1, length // 3), generator=generator).expand(-1, 2, -1)
        answers = torch.randint(0, vocabulary, (256, 2, length - length // 3), generator=generator)
        self.rows = torch.cat([prompts, answers], dim=-1)

    def __len__(self):
        return arguments.steps * pairs

    def __getitem__(self, index):
        chosen, rejected = self.rows[index % 256]
        return {"chosen": chosen, "rejected": rejected}


def answer_logps(model, rows):
    """The log-probability of each answer, given its prompt."""
    logits = model(input_ids=rows).logits[:, length // 3 - 1 : -1].float()
    tokens = rows[:, length // 3 :]
    return -functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(tokens.shape).sum(-1)


torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", cpu=not has_gpu)
config = GPTNeoXConfig(
    vocab_size=vocabulary,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    max_position_embeddings=length,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
with torch.device(accelerator.device):
    model = GPTNeoXForCausalLM(config)
reference = copy.deepcopy(model)
reference.eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=has_gpu)
loader = torch.utils.data.DataLoader(Preferences(), batch_size=pairs, shuffle=True, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for step, examples in enumerate(loader, 1):
    rows = torch.cat([examples["chosen"], examples["rejected"]])
    policy_chosen, policy_rejected = answer_logps(model, rows).chunk(2)
    with torch.no_grad() if arguments.fixed else contextlib.nullcontext(), accelerator.autocast():
        reference_chosen, reference_rejected = answer_logps(reference, rows).chunk(2)
    margins = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected)
    loss = -functional.logsigmoid(BETA * margins).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0 or step == arguments.steps:
        accelerator.print(f"step {step} loss {loss.item():.4f} margin {margins.mean().item():.4f}")
