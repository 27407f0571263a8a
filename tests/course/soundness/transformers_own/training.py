# transformers' own code in the signatures of lab 08. Every block has to earn full points.

# %% exercise 8.1: ForCausalLMLoss
from transformers.loss.loss_utils import ForCausalLMLoss


def causal_lm_loss(logits, labels):
    return ForCausalLMLoss(logits, labels, logits.size(-1))


# %% exercise 8.1: fixed_cross_entropy, divided by num_items_in_batch
from transformers.loss.loss_utils import fixed_cross_entropy


def causal_lm_loss(logits, labels):
    wide = logits[:, :-1].float().flatten(0, 1)
    targets = labels[:, 1:].flatten()
    return fixed_cross_entropy(wide, targets, num_items_in_batch=(targets != -100).sum())


# %% exercise 8.2: get_cosine_with_min_lr_schedule_with_warmup
# Its warm-up begins at 0 and its cosine rises again after the end: so the warm-up is taken a
# step ahead, and the cosine only up to the end.
import transformers


def learning_rate(step, peak, warmup_steps, total_steps, floor=0.0):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    schedule = transformers.get_cosine_with_min_lr_schedule_with_warmup(
        optimizer, warmup_steps, total_steps, min_lr=floor
    )
    at = step + 1 if step < warmup_steps else min(step, total_steps)
    return peak * schedule.lr_lambdas[0](at)


# %% exercise 8.2: get_cosine_with_min_lr_schedule_with_warmup_lr_rate
# Its warm-up is ours; its cosine is a step ahead.
import transformers


def learning_rate(step, peak, warmup_steps, total_steps, floor=0.0):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    schedule = transformers.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
        optimizer, warmup_steps, total_steps, min_lr=floor
    )
    at = step if step < warmup_steps else min(step, total_steps) - 1
    if step == warmup_steps:
        return peak
    return peak * schedule.lr_lambdas[0](at)


# %% exercise 8.3: ForCausalLMLoss and load_balancing_loss_func of Qwen3-MoE
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func


def train_step(model, optimizer, input_ids, labels, lr, attention_mask=None, max_grad_norm=1.0):
    model.train()
    model.zero_grad()  # as the Trainer before its first step
    config = model.config
    logits, routers = model(input_ids, attention_mask, output_router_logits=True)
    loss = ForCausalLMLoss(logits, labels, config.vocab_size)
    balance = torch.zeros(())
    if routers:
        experts, top_k = config.num_experts, config.num_experts_per_tok
        each = [load_balancing_loss_func((x,), experts, top_k, attention_mask) for x in routers]
        balance = sum(each) / len(each)
    (loss + config.router_aux_loss_coef * balance).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return {"loss": loss.item(), "balance_loss": balance.item(), "grad_norm": norm.item()}


# %% exercise 8.4: num_items_in_batch, as its Trainer hands it to the loss
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func


def train_step_in_parts(
    model,
    optimizer,
    input_ids,
    labels,
    lr,
    accumulation_steps,
    attention_mask=None,
    max_grad_norm=1.0,
):
    model.zero_grad()  # as the Trainer before its first step
    config = model.config
    items = (labels[:, 1:] != -100).sum()
    told = {"loss": 0.0, "balance_loss": 0.0}
    inputs = {"input_ids": input_ids, "labels": labels, "attention_mask": attention_mask}
    for rows in torch.arange(len(labels)).chunk(accumulation_steps):
        part = {name: None if x is None else x[rows] for name, x in inputs.items()}
        ids, wanted, mask = part.values()
        logits, routers = model(ids, mask, output_router_logits=True)
        loss = ForCausalLMLoss(logits, wanted, config.vocab_size, num_items_in_batch=items)
        balance = torch.zeros(())
        if routers:
            experts, top_k = config.num_experts, config.num_experts_per_tok
            each = [load_balancing_loss_func((x,), experts, top_k, mask) for x in routers]
            balance = sum(each) / len(each) * (wanted[:, 1:] != -100).sum() / items
        (loss + config.router_aux_loss_coef * balance).backward()
        told["loss"] += loss.item()
        told["balance_loss"] += balance.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return told | {"grad_norm": norm.item()}
