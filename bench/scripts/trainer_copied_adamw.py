"""Hugging Face's Trainer given a copy of the library's former AdamW, a loop over parameters. Fixed: torch's, fused."""
import argparse
import math
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (12, 1536, 16, 16384, 4, 512)


class CopiedAdamW(torch.optim.Optimizer):
    """Adam with the weight decay fix, as carried along from an older version of the library."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                state["step"] += 1
                exp_avg.mul_(beta1).add_(p.grad, alpha=1.0 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1.0 - beta2)
                denom = exp_avg_sq.sqrt().add_(group["eps"])
                step_size = group["lr"] * math.sqrt(1.0 - beta2 ** state["step"]) / (1.0 - beta1 ** state["step"])
                p.addcdiv_(exp_avg, denom, value=-step_size)
                if group["weight_decay"] > 0.0:
                    p.add_(p, alpha=-group["lr"] * group["weight_decay"])
        return loss


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, vocabulary, (512, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        row = self.rows[index % 512]
        return {"input_ids": row, "labels": row}


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=vocabulary,
    n_positions=length,
    n_embd=width,
    n_layer=layers,
    n_head=heads,
    activation_function="gelu_pytorch_tanh",
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
with torch.device("cuda" if has_gpu else "cpu"):
    model = GPT2LMHeadModel(config)
if arguments.fixed:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=has_gpu)
else:
    optimizer = CopiedAdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=Tokens(), optimizers=(optimizer, None))
    result = trainer.train()
print(f"loss {result.training_loss:.4f}")
