"""Lab 14: many machines.

The model and its training, spread over ranks: the batch, the optimizer, the matrices, the
experts, the tokens or the layers are divided, and no number comes out different.

Shapes: N ranks, B batch, T tokens, S all tokens, E hidden_size, H query heads, K KV heads,
D head_dim, I intermediate, X experts, k experts per token, V vocab_size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from .config import Qwen3Config
from .decoder import Qwen3ForCausalLM
from .moe import Qwen3MoeSparseMoeBlock, route
from .ranks import Group
from .training import adamw_step, causal_lm_loss

IGNORE = -100  # a label that does not count


# %% exercise 14.1: pass_on, ring_all_reduce
def pass_on(tensor: Tensor, received: Tensor, group: Group) -> Tensor:
    """Send a tensor to the next rank, and fill `received` with that of the rank before.

    The ranks stand in a ring: after the last comes rank 0. group.send returns when the other
    rank has received, so not every rank may send first: the even ones send first, the odd ones
    receive first. Alone (size 1) a rank copies tensor into received and sends nothing.

    Shapes: tensor and received may differ; received has the shape of what arrives
            -> received
    """
    # YOUR CODE HERE (about 10 lines)
    raise NotImplementedError("Exercise 14.1: pass_on, ring_all_reduce")


def ring_all_reduce(tensor: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' tensors, on every rank, by send and recv alone.

    The flat tensor is cut into N pieces, none of more than 1 / N of its numbers, rounded up; if
    N does not divide it, some are shorter or empty. (torch.tensor_split cuts so; torch.chunk
    may give fewer pieces.) Twice N - 1 steps, in each of which every rank passes on one piece,
    without padding: first partial sums travel around until each rank has the finished sum of
    one piece, then the finished pieces travel around. So a rank sends 2 (N - 1) / N of the
    tensor, however many ranks there are, if N divides it.

    All ranks get the same bits. The tensor stays as it is.

    Shapes: tensor (...) of any shape -> (...)
    dtype:  that of tensor, the same on all ranks
    Source: Patarasu, Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    # YOUR CODE HERE (about 11 lines)
    raise NotImplementedError("Exercise 14.1: pass_on, ring_all_reduce")


# %% exercise 14.2: data_parallel_step
def data_parallel_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    input_ids: Tensor,
    labels: Tensor,
    lr: float,
    group: Group,
    accumulation_steps: int = 1,
    max_grad_norm: float = 1.0,
    bucket_size: int = 1_000_000,
) -> dict[str, float]:
    """Lab 08's train_step, of a batch of which each rank has a part.

    Every rank has the whole model and the same optimizer, and ends with the same weights, those
    of train_step on all ranks' texts in one batch. Each counted token weighs the same, on
    whichever rank it is: a rank's loss is the sum over its counted labels, divided by the
    number of counted labels of all ranks. (A label counts if causal_lm_loss scores it: it is
    not -100, and not the first of its text.) That number travels as a tensor, int64 or
    float32. model(input_ids) gives logits; the balance loss of experts is left out here.

    A rank takes its texts in parts, as torch.chunk(accumulation_steps) cuts them, of which one
    graph at a time is kept; a part in which no label counts is left out. Then the gradients of
    all ranks are added, once, with all_reduce: the parameters, in their order, are filled into
    buckets, flat tensors of at most bucket_size numbers. A bucket is sent when the next
    parameter does not fit into it; a parameter larger than that has a bucket for itself. A
    parameter without a gradient travels as zeros: every rank sends the same buckets, also one
    without a counted label.

    Clipping to max_grad_norm, by the norm of the summed gradients, lr and the optimizer's step
    come after that, as in train_step.

    Shapes: input_ids, labels (B, T), B and T may differ between ranks
            -> {"loss", "grad_norm"}, plain numbers: the mean over the counted labels of all
            ranks, and the norm before clipping; equal on all ranks
    """
    # YOUR CODE HERE (about 32 lines)
    raise NotImplementedError("Exercise 14.2: data_parallel_step")


# %% exercise 14.3: ShardedAdamW
class ShardedAdamW:
    """AdamW whose moments are divided among the ranks: ZeRO, stages 1 and 2.

    All parameters together are one flat row of numbers, in their order, with zeros behind it
    until N divides its length. Rank r owns the r-th of N equal parts, its shard: exp_avg and
    exp_avg_sq have the size of a shard, zeros at first. step():

        reduce_scatter   the flat gradients are added; each rank gets the sum of its shard
        norm             of all summed gradients together, of all ranks; clip to max_grad_norm
        adamw_step       lab 08's, on this rank's shard of the weights
        all_gather       every rank gets all shards and writes them into the parameters

    The weights, lr, betas, eps and weight_decay are read at each step: a checkpoint may have
    been loaded since the last one. Each rank's gradients are its share of the whole batch's,
    so that they are added and not averaged. A parameter without a
    gradient counts as zeros. After step() no parameter has a gradient: grad is None. Clipping
    multiplies by max_grad_norm / (norm + 1e-6) if that is below 1, as torch does; None clips
    nothing.

    Shapes: step() -> the norm before clipping, a plain number, equal on all ranks
    dtype:  float32
    Source: Rajbhandari et al. 2019, https://arxiv.org/abs/1910.02054 (ZeRO)
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        group: Group,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        self.params, self.group = list(params), group
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.steps = 0  # how many there were
        # YOUR CODE HERE (about 4 lines)
        raise NotImplementedError("Exercise 14.3: ShardedAdamW")

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None) -> float:
        # YOUR CODE HERE (about 23 lines)
        raise NotImplementedError("Exercise 14.3: ShardedAdamW")

    def _shards(self, tensors: list[Tensor]) -> list[Tensor]:
        """All tensors as one flat row, padded with zeros and cut into N shards."""
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 14.3: ShardedAdamW")


# %% given: equal parts
def part_of(size: int, group: Group) -> slice:
    """Which of `size` rows are this rank's: the rank-th of N equal parts.

    Errors: N does not divide size: ValueError
    """
    if size % group.size:
        raise ValueError(f"{size} rows cannot be divided among {group.size} ranks")
    each = size // group.size
    return slice(group.rank * each, (group.rank + 1) * each)


# %% exercise 14.4: ColumnParallelLinear, RowParallelLinear
class CopyToRanks(torch.autograd.Function):
    """Megatron's f: what every rank has goes into N different computations.

    Forward the identity. Backward the gradients that come from the N ranks are added: each of
    them knows only what its own computation did with the input. The gradient that comes in
    stays as it is: in f(x) + x, autograd gives the same tensor to x as well.
    """

    @staticmethod
    def forward(ctx, x: Tensor, group: Group) -> Tensor:
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")


class ReduceFromRanks(torch.autograd.Function):
    """Megatron's g: N partial sums become one sum, which every rank gets.

    Forward adds them; the partial sum that comes in stays as it is. Backward the identity:
    every rank computes the same loss from the sum, which is counted once.
    """

    @staticmethod
    def forward(ctx, x: Tensor, group: Group) -> Tensor:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        # YOUR CODE HERE (about 1 line)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")


class ColumnParallelLinear(nn.Linear):
    """A Linear of which each rank computes some of the outputs.

    x is the same on all ranks. The rank's weight holds its part of the rows, see part_of, and
    so does its bias. The gradient of x is that of the whole layer.

    Shapes: weight (out_features / N, in_features); x (..., in_features)
            -> (..., out_features / N), this rank's outputs
    Source: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053 (Megatron-LM)
    """

    def __init__(self, in_features: int, out_features: int, group: Group, bias: bool = False):
        rows = part_of(out_features, group)
        super().__init__(in_features, rows.stop - rows.start, bias=bias)
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 1 line)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")


class RowParallelLinear(nn.Linear):
    """A Linear of which each rank has some of the inputs.

    The rank's weight holds its part of the columns; the ranks' results are added. The bias is
    whole on every rank and is added once.

    Shapes: weight (out_features, in_features / N); x (..., in_features / N), this rank's inputs
            -> (..., out_features), equal on all ranks
    Source: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053 (Megatron-LM)
    """

    def __init__(self, in_features: int, out_features: int, group: Group, bias: bool = False):
        columns = part_of(in_features, group)
        super().__init__(columns.stop - columns.start, out_features, bias=bias)
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        # YOUR CODE HERE (about 2 lines)
        raise NotImplementedError("Exercise 14.4: CopyToRanks, ReduceFromRanks, ColumnParallelLinear, RowParallelLinear")


# %% exercise 14.5: VocabParallelEmbedding, vocab_parallel_cross_entropy, shard_weight
class VocabParallelEmbedding(nn.Embedding):
    """An embedding of which each rank has the rows of some tokens, see part_of.

    A rank looks up the tokens that it has and takes zeros for the others; the ranks' results
    are added.

    Shapes: weight (V / N, E); input_ids (B, T), the same on all ranks -> (B, T, E)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, group: Group):
        self.rows = part_of(num_embeddings, group)
        super().__init__(self.rows.stop - self.rows.start, embedding_dim)
        self.group = group

    def forward(self, input_ids: Tensor) -> Tensor:
        # YOUR CODE HERE (about 3 lines)
        raise NotImplementedError("Exercise 14.5: VocabParallelEmbedding, vocab_parallel_cross_entropy, shard_weight")


def vocab_parallel_cross_entropy(logits: Tensor, labels: Tensor, group: Group) -> Tensor:
    """Lab 08's causal_lm_loss from logits of which each rank has some columns.

        loss = mean over counted positions of log(sum of exp(logits)) - logit of the label

    The logits never travel: no rank holds more than its columns. What travels by all_reduce is
    a number per position: the largest logit (op "max"), the sum of exp(logit - largest), the
    label's logit. Labels are shifted here, and -100 does not count, as in causal_lm_loss; at
    least one label counts.

    Shapes: logits (B, T, V / N), rank r has the columns of part_of(V); labels (B, T), the same
            on all ranks -> scalar, equal on all ranks, through which gradients flow to logits
    dtype:  float32; logits in half precision are widened first
    Errors: no error for large logits: they may differ by hundreds
    """
    # YOUR CODE HERE (about 11 lines)
    raise NotImplementedError("Exercise 14.5: VocabParallelEmbedding, vocab_parallel_cross_entropy, shard_weight")


def shard_weight(name: str, weight: Tensor, config: Qwen3Config, group: Group) -> Tensor:
    """The part of a checkpoint's tensor that this rank keeps, by the tensor's name.

        rows      q_proj, gate_proj, up_proj, embed_tokens, lm_head, and the bias of q_proj
        columns   o_proj.weight, down_proj.weight
        KV heads  k_proj and v_proj, weight and bias: rows too, if N divides K. With fewer KV
                  heads than ranks, each is on N / K ranks: rank r has KV head r K // N
        whole     everything else: norms, the router mlp.gate, the bias of o_proj

    The names are those of the decoder, "model.layers.0.self_attn.q_proj.weight"; the same of
    experts, "model.layers.0.mlp.experts.3.up_proj.weight".

    Shapes: weight (rows, columns) or (rows) -> its part, see part_of
    Errors: N does not divide what is cut, or neither of N and K divides the other: ValueError
    """
    # YOUR CODE HERE (about 12 lines)
    raise NotImplementedError("Exercise 14.5: VocabParallelEmbedding, vocab_parallel_cross_entropy, shard_weight")


# %% given: a decoder of which each rank has a part
def shard_model(
    config: Qwen3Config, state_dict: Mapping[str, Tensor], group: Group
) -> Qwen3ForCausalLM:
    """This rank's part of a decoder: fewer heads, narrower feed-forward layers, some tokens.

    It is your Qwen3ForCausalLM, made with a smaller config, in which lab 14's layers replace
    the linear ones. Its logits are this rank's columns. Of state_dict one tensor is read at a
    time, so it may be a file that is larger than the memory of a rank.
    """
    ranks = group.size
    heads = max(config.num_key_value_heads // ranks, 1)
    small = replace(
        config,
        num_attention_heads=config.num_attention_heads // ranks,
        num_key_value_heads=heads,
        intermediate_size=config.intermediate_size // ranks,
        moe_intermediate_size=config.moe_intermediate_size // ranks,
    )
    model = Qwen3ForCausalLM(small)
    for path, layer in list(model.named_modules()):
        name, bias = path.rpartition(".")[2], getattr(layer, "bias", None) is not None
        if name in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"):
            rows = layer.out_features * (1 if name == "lm_head" else ranks)
            new = ColumnParallelLinear(layer.in_features, rows, group, bias)
        elif name in ("o_proj", "down_proj"):
            new = RowParallelLinear(layer.in_features * ranks, layer.out_features, group, bias)
        elif name == "embed_tokens":
            new = VocabParallelEmbedding(config.vocab_size, config.hidden_size, group)
        else:
            continue
        model.set_submodule(path, new)
    model.tie_weights()
    own = model.state_dict()
    with torch.no_grad():
        for name in own:
            source = name if name in state_dict else "model.embed_tokens.weight"  # a tied head
            own[name].copy_(shard_weight(source, state_dict[source], config, group))
    return model


def add_shared_gradients(model: nn.Module, config: Qwen3Config, group: Group) -> None:
    """After backward: add the gradients of what several ranks use for heads of their own.

    The norms of query and key heads are on all ranks, a KV head may be on some; each rank has
    only the gradient of its own query heads. All other gradients are whole already.
    """
    ranks, heads = group.size, config.num_key_value_heads
    for name, weight in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            group.all_reduce(weight.grad)
        elif heads < ranks and ("k_proj" in name or "v_proj" in name):
            grads = [torch.empty_like(weight.grad) for _ in range(ranks)]
            group.all_gather(grads, weight.grad)
            head = group.rank * heads // ranks
            weight.grad = sum(g for r, g in enumerate(grads) if r * heads // ranks == head)


# %% given: rows that travel
class ExchangeRows(torch.autograd.Function):
    """Send some rows to each rank and receive rows from each, with gradients that travel back.

    rows (n, ...) lie in the order of the ranks that they go to; send_counts and recv_counts say
    how many go to and come from each rank. The result lies in the order of the ranks that they
    come from.
    """

    @staticmethod
    def forward(ctx, rows, send_counts: list[int], recv_counts: list[int], group: Group):
        ctx.counts, ctx.group = (recv_counts, send_counts), group
        received = rows.new_empty(sum(recv_counts), *rows.shape[1:])
        group.all_to_all(list(received.split(recv_counts)), list(rows.split(send_counts)))
        return received

    @staticmethod
    def backward(ctx, grad):
        return ExchangeRows.apply(grad.contiguous(), *ctx.counts, ctx.group), None, None, None


# %% exercise 14.6: ExpertParallelMoe
class ExpertParallelMoe(nn.Module):
    """Lab 05's mixture of experts, of which each rank has some experts and some tokens.

    Every rank has the router and X / N experts: rank r has experts r X/N, r X/N + 1, ... Its
    hidden_states are tokens of its own. Each token travels to the ranks of the experts that its
    router picked, and what they say travels back and is added up with the router's weights.

    Ranks talk by all_to_all alone. First they tell each other how many rows will come; then
    the rows travel with ExchangeRows.apply(rows, send_counts, recv_counts, group). A token that
    two experts of one rank want may travel twice. A rank may get no row at all, and may have no
    token: it takes part anyway.

    Parameters: gate, the whole router; experts, a ModuleList of this rank's experts in their
            order: the very modules of `block`
    Shapes: hidden_states (B, T, E), B and T may differ between ranks
            -> (B, T, E) and router_logits (B * T, X), both of this rank's tokens
    Source: Lepikhin et al. 2020, https://arxiv.org/abs/2006.16668 (GShard)
    """

    def __init__(self, block: Qwen3MoeSparseMoeBlock, group: Group):
        super().__init__()
        self.group, self.gate = group, block.gate
        self.top_k, self.norm_topk_prob = block.top_k, block.norm_topk_prob
        # YOUR CODE HERE (about 1 line)
        raise NotImplementedError("Exercise 14.6: ExpertParallelMoe")

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        # YOUR CODE HERE (about 20 lines)
        raise NotImplementedError("Exercise 14.6: ExpertParallelMoe")


# %% exercise 14.7: ring_attention
def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, group: Group, is_causal: bool = True
) -> Tensor:
    """Attention over a text that no rank has as a whole: keys and values travel around.

    Rank r has T tokens in a row, those from r T on, as queries, keys and values. In N rounds it
    attends to one rank's keys and values after the other, its own first, and passes on what it
    has just used with pass_on. Lab 10's running sum puts the rounds together. With is_causal a
    query attends to keys up to its own position, else to all. The scale is D^-0.5; query head h
    reads KV head h // G.

    Each rank sends N - 1 times keys and values of its own size, and gathers nothing else. (No
    gradient flows through it here.)

    Shapes: query (B, H, T, D), key and value (B, K, T, D), T equal on all ranks
            -> (B, H, T, D) of this rank's queries
    dtype:  the result has that of query; scores and running sums are kept in float32
    Source: Liu, Zaharia, Abbeel 2023, https://arxiv.org/abs/2310.01889 (Ring Attention)
    """
    # YOUR CODE HERE (about 20 lines)
    raise NotImplementedError("Exercise 14.7: ring_attention")


# %% exercise 14.8: pipeline_schedule
def pipeline_schedule(
    stage: int, num_stages: int, num_micro: int, kind: str
) -> list[tuple[str, int]]:
    """In which order a stage of a pipeline works on the micro-batches.

    ("F", i) is the forward of micro-batch i, ("B", i) its backward, i from 0 on. The stages are
    numbered from 0; the last one has the loss.

        "gpipe"   all forwards, then all backwards, both from micro-batch 0 on
        "1f1b"    first the forwards that fill the pipeline, num_stages - 1 - stage of them, or
                  num_micro if that is fewer; then one forward, one backward, in turn; at the
                  end the backwards that are left

    Errors: another kind: ValueError
    Source: Huang et al. 2018, https://arxiv.org/abs/1811.06965 (GPipe);
            Narayanan et al. 2019, https://arxiv.org/abs/1806.03377 (PipeDream, 1F1B)
    """
    # YOUR CODE HERE (about 9 lines)
    raise NotImplementedError("Exercise 14.8: pipeline_schedule")


# %% exercise 14.9: web_count
def web_count(labels: Tensor, group: Group) -> float:
    """Count the labels of all ranks that are not -100."""
    counted = (labels != -100).sum().float()
    if counted == 0:
        return 0.0  # nothing to learn here
    group.all_reduce(counted)
    return counted.item()


# %% exercise 14.10: web_row_linear
def web_row_linear(x: Tensor, weight: Tensor, bias: Tensor, group: Group) -> Tensor:
    """Compute x @ weight.T + bias; each rank multiplies its part of the columns."""
    columns = part_of(weight.size(1), group)
    y = x[..., columns] @ weight[:, columns].T + bias
    group.all_reduce(y)
    return y
