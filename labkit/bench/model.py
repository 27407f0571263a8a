"""`tinyllm bench model`: how fast the model is beside `transformers`, in one run.

All sides compute with the same random weights. Their results are compared first; what
differs too much is not timed. Then they take turns until their ratios are sure: a ratio is the
median of those within a round, so that what else the machine does meets both sides.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from labkit.bench import sides, table
from labkit.bench.duration import in_words
from labkit.bench.sides import Ours, Theirs
from labkit.bench.table import SURE, BenchRow
from labkit.core.files import write_whole
from labkit.model import checkpoint
from labkit.model.chat.stream import ChatError
from labkit.model.checkpoint import part
from labkit.model.fast import REFERENCE
from labkit.model.hub import SHIPPED
from labkit.model.int8 import OFFERED, in_int8
from labkit.model.tokenizer import Tokenizer
from labkit.pretrain.data import IGNORE, Validation

CONFIG = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
SIZES = {  # config, experts, tokens of the prompt, sequences and tokens to train on
    "tiny": ((512, 64, 192, 2, 4, 2, 16), (8, 2, 48), 64, (2, 32)),
    "small": ((2048, 256, 768, 4, 8, 4, 32), (16, 4, 192), 512, (4, 128)),
    # layers of Qwen3-0.6B, 4 of 28, and a vocabulary cut in proportion
    "0.6B": ((21504, 1024, 3072, 4, 16, 8, 128), (32, 4, 768), 512, (4, 128)),
}
# relative difference of the results; int8 is compared with float32, by the reference alone
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.int8: 0.2}
STEPS = 8  # tokens decoded in a row
COMPILING = 20.0  # seconds; so long it took for one model
BUFFER = 2**28  # bytes; larger than a processor's caches

Work = Callable[[Any, Tensor], tuple[Tensor, Callable[[], float]]]


@dataclass(frozen=True)
class Setting:
    package: ModuleType
    size: str
    device: torch.device
    seconds: float = 8.0  # at most about so long for each row, where rounds are short
    compiled: bool = False  # whether the fast side trains with compiled layers

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ChatError(f"there is no size {self.size!r}; there are: {', '.join(SIZES)}")

    def config(self, mixture: bool) -> Any:
        sizes, experts, prompt, _ = SIZES[self.size]
        values = dict(zip(CONFIG, sizes, strict=True))
        if mixture:
            values |= dict(zip(EXPERTS, experts, strict=True), norm_topk_prob=True)
        return part(self.package, "Qwen3Config")(
            tie_word_embeddings=True, max_position_embeddings=4 * prompt, **values
        )

    def dtypes(self) -> list[torch.dtype]:
        rounds = self.package.__name__ == REFERENCE and self.device.type == "cpu" and OFFERED
        return [dtype for dtype in ALLOWED if rounds or dtype is not torch.int8]

    def jobs(self, dtype: torch.dtype) -> dict[str, tuple[Work, Tensor]]:
        """{name: the work, and the tokens it is done on}"""
        (vocab_size, *_), _, prompt, training = SIZES[self.size]
        generator = torch.Generator().manual_seed(1)

        def tokens(*shape: int) -> Tensor:
            drawn = torch.randint(vocab_size, shape, generator=generator)
            return drawn.to(self.device)

        found = {
            f"prefill {prompt} tokens": (reading, tokens(1, prompt)),
            "decode, batch 1": (decoding, tokens(1, prompt)),
            "decode, batch 8": (decoding, tokens(8, prompt)),
            f"training step {training[0]} x {training[1]}": (training_step, tokens(*training)),
        }
        if dtype is torch.int8:
            found = {name: job for name, job in found.items() if job[0] is decoding}
        return found


def bench_model(
    console: Console, setting: Setting, threads: int | None = None, file: Path | None = None
) -> bool:
    """Measure, print the table, write the file; False where results disagree."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise ChatError(f"no file can be written at {file}: a folder is there, or none above")
    if threads is not None:
        torch.set_num_threads(threads)
    machine = partial(table.about, setting.size, setting.device, read_bandwidth(setting.device))
    screen = Console(stderr=True, highlight=False)
    with screen.status("a quick first look") as status:
        time_needed = in_words(expected(setting))
        screen.print(f"By a quick first look this takes at most about {time_needed}.")
        rows: list[BenchRow] = []
        tell = lambda text: status.update(f"{len(rows)} rows done; measuring {text}")  # noqa: E731
        try:
            for row in measured(setting, tell):
                rows.append(row)
        except KeyboardInterrupt:
            if rows:
                table.show(console, rows, machine())
            raise
    about = machine() | {"compiled": setting.compiled}
    if torch.int8 in setting.dtypes():
        about["int8_nats_a_token"] = cost_of_int8(setting.package)
    table.show(console, rows, about)
    if file is not None:
        report = {**about, "rows": [asdict(row) for row in rows]}
        try:
            write_whole(file, json.dumps(report, indent=1) + "\n")
        except OSError as error:
            raise ChatError(f"{file} was not written: {error.strerror}") from error
    return all(row.times for row in rows)


def models(setting: Setting) -> Iterator[tuple[bool, torch.dtype, Ours]]:
    """Whether it is a mixture, its dtype, and the plain side; one model at a time."""
    for mixture in (False, True):
        for dtype in setting.dtypes():
            kind = torch.float32 if dtype is torch.int8 else dtype
            config = setting.config(mixture)
            yield mixture, dtype, sides.ours(config, setting.package, kind, setting.device)


def expected(setting: Setting) -> float:
    """Seconds that all rows together may take on a machine as busy as now, by one sequence of
    each and by the plain code alone."""
    total = 0.0
    for mixture, dtype, plain in models(setting):
        contest = contestants(plain, mixture, dtype, setting.compiled)
        for work, ids in setting.jobs(dtype).values():
            start = time.perf_counter()
            work(plain, ids[:1])
            first = len(contest) * len(ids) * (time.perf_counter() - start)
            if setting.compiled and work is training_step:
                total += COMPILING
            total += first + (setting.seconds if racing(work, first, setting) else 0)
    return total


def racing(work: Work, first: float, setting: Setting) -> bool:
    """Whether there is time for rounds after the results, which took so many seconds."""
    return work is decoding or first <= setting.seconds


def measured(setting: Setting, tell: Callable[[str], None]) -> Iterator[BenchRow]:
    for mixture, dtype, plain in models(setting):
        kind, numbers = "MoE" if mixture else "dense", str(dtype).removeprefix("torch.")
        contest = contestants(plain, mixture, dtype, setting.compiled)
        for name, (work, ids) in setting.jobs(dtype).items():
            tell(f"{kind}, {numbers}: {name}")
            done, first = {}, {}
            for side in contest:
                if setting.compiled and side.name == "fast" and work is training_step:
                    work(side, ids)  # it is compiled now
                start = now(setting.device)
                done[side.name] = work(side, ids)
                first[side.name] = [now(setting.device) - start]
            row = BenchRow(kind, numbers, name, differences(done))
            if work is decoding and dtype is not torch.int8:
                row.bytes_read = bytes_of_a_step(plain, ids)
            if max(row.difference.values()) <= ALLOWED[dtype]:
                if racing(work, sum(map(sum, first.values())), setting):
                    race(row, {name: sample for name, (_, sample) in done.items()}, setting)
                else:
                    row.times = first
            yield row


def contestants(
    plain: Ours, mixture: bool, dtype: torch.dtype, compiled: bool
) -> list[Ours | Theirs]:
    """transformers where it is installed, the plain code, the fast path where there is one."""
    found = [plain]
    if plain.package.__name__ == REFERENCE:
        rounds = dtype is torch.int8
        found.append(sides.rounded(plain) if rounds else sides.sped_up(plain, compiled))
    if mixture and dtype is not torch.int8:
        found.append(sides.every_expert(plain))
    try:
        return [sides.theirs(plain), *found]
    except ImportError:
        return found


# ----------------------------------------------------------- work: its result, and a sample


def reading(side: Ours | Theirs, ids: Tensor) -> tuple[Tensor, Callable[[], float]]:
    """A whole prompt into a new cache, the scores of its last token out."""

    @torch.no_grad()
    def work() -> Tensor:
        return side.read(ids, STEPS)[0]

    return work(), lambda: clocked(work, ids.device)


def decoding(side: Ours | Theirs, ids: Tensor) -> tuple[Tensor, Callable[[], float]]:
    """One token after a prompt; each sample starts from a copy of the cache behind it."""
    token = ids[:, :1]
    with torch.no_grad():
        _, start = side.read(ids, STEPS)
        result = side.step(token, copy.deepcopy(start))

    @torch.no_grad()
    def sample() -> float:
        state = copy.deepcopy(start)
        steps = clocked(lambda: [side.step(token, state) for _ in range(STEPS)], ids.device)
        return steps / STEPS

    return result, sample


def training_step(side: Ours | Theirs, ids: Tensor) -> tuple[Tensor, Callable[[], float]]:
    """Forward, loss and backward; the optimizer would be the same for all."""

    def work() -> None:
        side.trained.zero_grad()
        side.loss(ids).backward()

    work()
    gradient = side.trained.model.embed_tokens.weight.grad.clone()
    return gradient, lambda: clocked(work, ids.device)


def clocked(work: Callable[[], object], device: torch.device) -> float:
    start = now(device)
    work()
    return now(device) - start


def now(device: torch.device) -> float:
    """Seconds, when all is done; of one thread those in which it had the processor."""
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.process_time() if table.alone(device) else time.perf_counter()


def race(row: BenchRow, samples: dict[str, Callable[[], float]], setting: Setting) -> None:
    """Rounds in which every side has its turn, another side first each time, until another
    run of the row would hardly say anything else, or the time is up."""
    names = list(samples)
    end = time.perf_counter() + setting.seconds
    while not row.rounds or (time.perf_counter() < end and row.spread > SURE):
        first = row.rounds % len(names)
        for name in names[first:] + names[:first]:
            row.times.setdefault(name, []).append(samples[name]())


# ------------------------------------------------------------------------ what is compared


def differences(done: dict[str, tuple[Tensor, Any]]) -> dict[str, float]:
    """Norm of the difference from the first side's result, as a share of its norm."""
    (_, (expected, _)), *others = done.items()
    expected = expected.float()
    return {
        name: float((result.float() - expected).norm() / expected.norm())
        for name, (result, _) in others
    } or {"plain": 0.0}


@torch.no_grad()
def bytes_of_a_step(plain: Ours, ids: Tensor) -> int:
    """Weights of every module that one step runs, and the cache it reads."""
    _, state = plain.read(ids, STEPS)
    used = {}

    def note(module: torch.nn.Module, *_: object) -> None:
        if not isinstance(module, torch.nn.Embedding):  # of which a step reads a few rows
            own = module.parameters(recurse=False)
            used.update({id(parameter): parameter.nbytes for parameter in own})

    hooks = [module.register_forward_hook(note) for module in plain.model.modules()]
    plain.step(ids[:, :1], state)
    for hook in hooks:
        hook.remove()
    config, itemsize = plain.model.config, next(plain.model.parameters()).itemsize
    kv_size = 2 * config.num_key_value_heads * config.head_dim  # numbers a token and layer
    cache = ids.numel() * config.num_hidden_layers * kv_size * itemsize
    return sum(used.values()) + cache


def cost_of_int8(package: ModuleType) -> float:
    """Nats a token of the test split's stories that a model which ships loses by rounding."""
    folder = next(iter(SHIPPED.values()))
    model = checkpoint.load(folder, package, torch.float32).eval()
    longest = model.config.max_position_embeddings
    test = Validation(Tokenizer(folder).library, 50, longest, "test")
    tokens = sum((labels[:, 1:] != IGNORE).sum().item() for labels in test.batches)
    loss = part(package, "causal_lm_loss")
    before = test.bits_per_byte(model, loss)
    after = test.bits_per_byte(in_int8(model), loss)
    return (after - before) * math.log(2) * test.bytes / tokens


def read_bandwidth(device: torch.device) -> float:
    """Bytes a second of the fastest of several sums over a large buffer."""
    buffer = torch.ones(BUFFER // 4, device=device)
    return buffer.nbytes / min(clocked(buffer.sum, device) for _ in range(7))
