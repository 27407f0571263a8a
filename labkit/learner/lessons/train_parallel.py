"""Train the story model on several ranks with the learner's own lab 14.

    python -m labkit.learner.lessons.train_parallel --by data
    torchrun --nproc-per-node 2 -m labkit.learner.lessons.train_parallel --by data

--by data is exercise 14.2, optimizer 14.3, tensor 14.4 and 14.5. The loss curve is the same on
any number of ranks. Under torchrun the ranks are processes that communicate by nccl if there is
a GPU for each of them, else by gloo.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from labkit.course.lang import tr
from labkit.course.syllabus import LABS
from labkit.learner import workspace
from labkit.learner.lessons.data import Rows
from labkit.learner.models import MODEL_LABS
from labkit.model.hub import SHIPPED
from labkit.model.tokenizer import Tokenizer
from labkit.sandbox.inside.importer import PACKAGE, imported

WAYS = ("data", "optimizer", "tensor")
# the texts of each step on all ranks together, their length, the rate
TEXTS, LENGTH, RATE = 8, 64, 3e-3
SIZES = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "head_dim": 16}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}
MODULES = ("config", "decoder", "parallel", "ranks", "training")


def learner_code() -> SimpleNamespace:
    """Import the learner's modules with the reference's code in unfinished exercises."""
    labs = [*MODEL_LABS, *(lab for lab in LABS if lab.module in ("training", "parallel"))]
    package = workspace.learner_modules() | workspace.completed_modules(labs)
    with imported(package, workspace.folder()):
        return SimpleNamespace(
            **{name: importlib.import_module(f"{PACKAGE}.{name}") for name in MODULES}
        )


def train(
    code: SimpleNamespace, group: Any, by: str, steps: int, tokenizer: Tokenizer,
    report: Callable[[str], object] = print,
) -> list[float]:  # fmt: skip
    """Train, and return the losses, which are equal on all ranks."""
    rows = Rows(tokenizer.library, LENGTH)
    size = -(-tokenizer.library.get_vocab_size() // 64) * 64  # so that ranks can divide it
    config = code.config.Qwen3Config(vocab_size=size, **SIZES)
    torch.manual_seed(0)
    model = code.decoder.Qwen3ForCausalLM(config)
    step = {"data": by_data, "optimizer": by_optimizer, "tensor": by_tensor}[by](
        code, model, config, group
    )
    losses = []
    for number in range(steps):
        losses.append(step(rows.batch(number, TEXTS).to(next(model.parameters()).device)))
        if group.rank == 0 and (number % 10 == 0 or number == steps - 1):
            report(f"step {number:3}  loss {losses[-1]:.4f}")
    return losses


def by_data(code, model, config, group) -> Callable[[Tensor], float]:
    """Exercise 14.2: ranks divide the batch and add their gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)

    def step(ids: Tensor) -> float:
        part = ids[code.parallel.part_of(len(ids), group)]
        found = code.parallel.data_parallel_step(
            model, optimizer, part, part, RATE, group, max_grad_norm=1.0
        )
        return found["loss"]

    return step


def by_optimizer(code, model, config, group) -> Callable[[Tensor], float]:
    """Exercise 14.3: ranks divide the batch and the optimizer."""
    optimizer = code.parallel.ShardedAdamW(model.parameters(), group, lr=RATE)

    def step(ids: Tensor) -> float:
        part = ids[code.parallel.part_of(len(ids), group)]  # every text counts as many tokens
        loss = code.training.causal_lm_loss(model(part), part) / group.size
        loss.backward()
        total = loss.detach().clone()
        group.all_reduce(total)
        optimizer.step(max_grad_norm=1.0)
        return total.item()

    return step


def by_tensor(code, model, config, group) -> Callable[[Tensor], float]:
    """Exercises 14.4 and 14.5: ranks divide every matrix."""
    part = code.parallel.shard_model(config, model.state_dict(), group)
    optimizer = torch.optim.AdamW(part.parameters(), lr=RATE, weight_decay=0.01)

    def step(ids: Tensor) -> float:
        optimizer.zero_grad()
        loss = code.parallel.vocab_parallel_cross_entropy(part(ids), ids, group)
        loss.backward()
        code.parallel.add_shared_gradients(part, config, group)
        optimizer.step()
        return loss.item()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--by", choices=WAYS, default="data", help="what is divided")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, help="a JSON file for the losses")
    options = parser.parse_args()
    code, tokenizer = learner_code(), Tokenizer(SHIPPED["stories-dense"])

    def work(group: Any) -> list[float]:
        return train(code, group, options.by, options.steps, tokenizer)

    if "RANK" not in os.environ:
        (losses,) = code.ranks.World(1, seconds=3600).run(work)
    else:
        losses = in_process(code, work)
    if options.out is not None and int(os.environ.get("RANK", 0)) == 0:
        options.out.write_text(json.dumps(losses))


def in_process(code: SimpleNamespace, work: Callable[[Any], list[float]]) -> list[float]:
    """Run `work` as one rank of those that torchrun has started."""
    import torch.distributed as dist

    size, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    has_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if has_gpu:
        torch.cuda.set_device(local)
        torch.set_default_device(f"cuda:{local}")
    dist.init_process_group("nccl" if has_gpu else "gloo")
    try:
        group = code.ranks.DistributedGroup()
        if group.rank == 0:
            print(f"{size} processes talk by {dist.get_backend()}")
        return work(group)
    finally:
        dist.destroy_process_group()


def run_processes(size: int, by: str = "data", steps: int = 20) -> list[float]:
    """Train on `size` processes of this machine and return the losses.

    If it fails, print why and return []. One rank runs in this process.
    """
    if size == 1:
        code, tokenizer = learner_code(), Tokenizer(SHIPPED["stories-dense"])
        quiet = partial(train, code, by=by, steps=steps, tokenizer=tokenizer, report=str)
        return code.ranks.World(1, seconds=3600).run(quiet)[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "losses.json"
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        command = [sys.executable, *launch, "-m", __spec__.name, "--by", by]
        command += ["--steps", str(steps), "--out", str(out)]
        paths = [str(Path(workspace.folder()).parent), *sys.path]
        settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        try:
            done = subprocess.run(
                command, env=os.environ | settings, capture_output=True, text=True, timeout=300
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            print(tr("the processes did not end: {error}", error=type(error).__name__))
            return []
        if done.returncode or not out.exists():
            errors = [line for line in done.stderr.splitlines() if "Error:" in line]
            print(tr("the processes failed: {error}", error=(errors or ["?"])[0][-300:]))
            return []
        return json.loads(out.read_text())


if __name__ == "__main__":
    main()
