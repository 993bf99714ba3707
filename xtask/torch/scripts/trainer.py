"""A Trainer of transformers over a small LLaMA with attention step by step."""
import os
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=32, attn_implementation="eager",
)
torch.manual_seed(0)
model = LlamaForCausalLM(config)
tokens = torch.randint(64, (64, 16))
data = [{"input_ids": row, "labels": row} for row in tokens]
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder, max_steps=8, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_strategy="no", optim="adamw_torch",
    )
    Trainer(model=model, args=settings, train_dataset=data).train()
print(os.environ["WANDB_MODE"], config._attn_implementation)
