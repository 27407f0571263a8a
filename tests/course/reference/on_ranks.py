"""All of lab 14 on the ranks of a group, each part compared with one machine.

As a script it is one process of torchrun, with the repository on PYTHONPATH: on_ranks.py OUT.
"""

import copy
import json
import sys
from pathlib import Path

import torch

from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.moe import Qwen3MoeSparseMoeBlock
from solutions.parallel import (
    ExpertParallelMoe,
    ShardedAdamW,
    add_shared_gradients,
    data_parallel_step,
    part_of,
    ring_all_reduce,
    ring_attention,
    shard_model,
    shard_weight,
    vocab_parallel_cross_entropy,
)
from solutions.ranks import DistributedGroup
from solutions.serving import tiled_attention
from solutions.training import causal_lm_loss, train_step

SIZES = {"vocab_size": 24, "hidden_size": 12, "intermediate_size": 16, "head_dim": 6}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model_of(**more):
    config = Qwen3Config(**SIZES, **more)
    model = Qwen3ForCausalLM(config)
    for number, weight in enumerate(model.parameters()):
        weight.data = 0.4 * numbers(*weight.shape, seed=number)
    return config, model


def texts(size=8):
    ids = torch.randint(24, (size, 9), generator=torch.Generator().manual_seed(5))
    labels = ids.clone()
    for row in range(size):
        labels[row, : row % 8] = -100  # unequal
    labels[:2] = -100
    return ids, labels


def gap(a, b):
    return float((a.detach() - b.detach()).abs().max())


def ring(group):
    whole = [numbers(3, 5, seed=rank) for rank in range(group.size)]
    return gap(ring_all_reduce(whole[group.rank], group), sum(whole))


def data(group):
    (_, one), ids_labels = model_of(), texts()
    many, rows = copy.deepcopy(one), part_of(8, group)
    reports = []
    for step in (0, 1):
        for model in (one, many):
            part = slice(None) if model is one else rows
            ids, labels = (t.roll(step, 0)[part] for t in ids_labels)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if model is one:
                reports.append(train_step(model, optimizer, ids, labels, 0.1))
            else:
                reports.append(data_parallel_step(model, optimizer, ids, labels, 0.1, group,
                                                  accumulation_steps=2))  # fmt: skip
    off = [abs(reports[0][key] - reports[1][key]) for key in ("loss", "grad_norm")]
    return max(*off, *map(gap, one.parameters(), many.parameters()))


def optimizer(group):
    (_, one), many = model_of(), model_of()[1]
    whole = torch.optim.AdamW(one.parameters(), lr=0.01, weight_decay=0.1)
    sharded = ShardedAdamW(many.parameters(), group, lr=0.01, weight_decay=0.1)
    for step in range(3):
        shares = [[numbers(*w.shape, seed=99 * step + 7 * rank + n)
                   for n, w in enumerate(one.parameters())]
                  for rank in range(group.size)]  # fmt: skip
        for n, (a, b) in enumerate(zip(one.parameters(), many.parameters(), strict=True)):
            a.grad, b.grad = sum(share[n] for share in shares), shares[group.rank][n]
        torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
        whole.step()
        sharded.step(max_grad_norm=1.0)
    return max(map(gap, one.parameters(), many.parameters()))


def tensor(group, **more):
    config, one = model_of(**more)
    ids, labels = texts(3)
    part = shard_model(config, one.state_dict(), group)
    logits = one(ids)
    causal_lm_loss(logits, labels).backward()
    columns = part(ids)
    vocab_parallel_cross_entropy(columns, labels, group).backward()
    add_shared_gradients(part, config, group)
    off = [gap(columns, logits[..., part_of(config.vocab_size, group)])]
    right = dict(one.named_parameters())
    for name, weight in part.named_parameters():
        if right[name].grad is not None:  # an expert that no token picks has no gradient
            mine = shard_weight(name, right[name].grad, config, group)
            off.append(gap(weight.grad, mine))
    return max(off)


def experts(group):
    config = Qwen3Config(**SIZES, **EXPERTS, norm_topk_prob=True)
    block = Qwen3MoeSparseMoeBlock(config)
    for number, weight in enumerate(block.parameters()):
        weight.data = numbers(*weight.shape, seed=number)
    one = copy.deepcopy(block)
    tokens = numbers(group.size, 5, 12, seed=9)
    moe, mine = ExpertParallelMoe(block, group), tokens[group.rank : group.rank + 1]
    mixed, scores = moe(mine)
    right, right_scores = one(tokens)
    off = [gap(mixed, right[group.rank : group.rank + 1])]
    off.append(gap(scores, right_scores.view(group.size, 5, -1)[group.rank]))
    right.square().sum().backward()
    mixed.square().sum().backward()
    for a, b in zip(moe.experts, one.experts[part_of(8, group)], strict=True):
        pairs = zip(a.parameters(), b.parameters(), strict=True)
        off += [gap(x.grad, y.grad) for x, y in pairs if y.grad is not None]
    return max(off)


def attention(group):
    query, key, value = (numbers(2, h, 3 * group.size, 6, seed=h) for h in (4, 2, 2))
    rows = slice(3 * group.rank, 3 * group.rank + 3)
    found = []
    for is_causal in (True, False):
        mine = ring_attention(*(t[:, :, rows] for t in (query, key, value)), group, is_causal)
        right = tiled_attention(query, key, value, is_causal=is_causal)
        found.append(gap(mine, right[:, :, rows]))
    return max(found)


PARTS = {
    "ring": ring, "data": data, "optimizer": optimizer, "tensor": tensor,
    "tied": lambda group: tensor(group, tie_word_embeddings=True),
    "mixture": lambda group: tensor(group, **EXPERTS),
    "experts": experts, "attention": attention,
}  # fmt: skip


def everything(group):
    """{part: largest difference from one machine}"""
    return {name: part(group) for name, part in PARTS.items()}


if __name__ == "__main__":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    group = DistributedGroup()
    offers: list = [None] * group.size
    dist.all_gather_object(offers, (everything(group), group.bytes_sent))
    if group.rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(offers))
    dist.destroy_process_group()
