# words: transformers.get_constant_schedule, transformers.get_constant_schedule_with_warmup, transformers.get_cosine_schedule_with_warmup, transformers.get_cosine_with_hard_restarts_schedule_with_warmup, transformers.get_inverse_sqrt_schedule, transformers.get_linear_schedule_with_warmup, transformers.get_polynomial_decay_schedule_with_warmup, transformers.get_scheduler
# other: transformers.quux
import torch
import transformers

def train(model, loader, updates):
    optimizer_plan = WORD(updates)
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer_plan.step()  # <~ TP605?
