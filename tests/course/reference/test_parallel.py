"""Lab 14 on threads, on processes and in a check, compared with one machine."""

import json
import os
import subprocess
import sys
import threading
import time

import on_ranks
import pytest
import torch

from labkit.course.paths import ROOT
from labkit.learner.lessons.machines import Layout, busy, serving, weights
from labkit.learner.lessons.train_parallel import WAYS, run_processes
from labkit.learner.models import reference
from labkit.model import checkpoint
from labkit.model.hub import SHIPPED
from labkit.sandbox.inside.call import Call, Given
from labkit.sandbox.inside.doubles import parallel as doubles
from labkit.sandbox.inside.perform import perform
from solutions.config import PRESETS
from solutions.decoder import count_parameters
from solutions.parallel import part_of, pipeline_schedule, shard_model
from solutions.ranks import Deadlock, World

CLOSE = 2e-6
GROUP = Given("parallel.group")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_threads_give_the_numbers_of_one_machine(size):
    for found in World(size).run(on_ranks.everything):
        assert {name: off for name, off in found.items() if not off < CLOSE} == {}


def on_processes(tmp_path, size):
    out = tmp_path / "out.json"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    command = [sys.executable, *launch, on_ranks.__file__, str(out)]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())


@pytest.mark.full
def test_four_processes_give_the_same_and_send_as_many_bytes(tmp_path):
    found = on_processes(tmp_path, 4)
    world = World(4)
    world.run(on_ranks.everything)
    assert [sent for _, sent in found] == world.bytes_sent
    for off, _ in found:
        assert {name: gap for name, gap in off.items() if not gap < CLOSE} == {}


@pytest.mark.full
@pytest.mark.parametrize("by", WAYS)
def test_the_loss_curve_of_two_processes_lies_on_that_of_one(by):
    one, two = (run_processes(size, by, steps=6) for size in (1, 2))
    assert len(one) == 6 and one[-1] < one[0]
    assert two == pytest.approx(one, abs=1e-4)


def test_the_shipped_models_are_loaded_rank_by_rank():
    for folder in SHIPPED.values():
        model = checkpoint.load(folder, reference(), torch.float32)
        ids = torch.arange(3, 40)[None]
        with torch.no_grad():
            logits = model(ids)
            parts = World(4).run(
                lambda g, m=model: shard_model(m.config, m.state_dict(), g)(ids)  # noqa: B023
            )
        assert torch.allclose(torch.cat(parts, dim=-1), logits, atol=1e-4)


# The group


def talk(group):
    """Use every collective; return the results."""
    rank, size = group.rank, group.size
    total, top = torch.tensor([1.0, rank]), torch.tensor([rank])
    group.all_reduce(total)
    group.all_reduce(top, op="max")
    places = [torch.zeros(2) for _ in range(size)]
    group.all_gather(places, torch.tensor([rank, 5.0]))
    mine = torch.zeros(3)
    group.reduce_scatter(mine, [torch.full((3,), 10.0 * r + rank) for r in range(size)])
    received = [torch.zeros(rank + 1) for _ in range(size)]
    group.all_to_all(received, [torch.full((r + 1,), float(rank)) for r in range(size)])
    if rank == 0:
        group.send(total, dst=1)
    elif rank == 1:
        group.recv(mine[:2], src=0)
    return [total, top, *places, mine, *received]


def test_a_check_s_ranks_are_the_ranks_of_the_notebook():
    world = World(3)
    threads = world.run(talk)
    call = Call("talk", ranks=3, traffic="bytes", group=GROUP)
    value = perform(call, {"talk": talk}).value
    assert value["bytes that each rank sends"] == world.bytes_sent
    for rank, tensors in enumerate(threads):
        pairs = zip(value[f"rank {rank}"], tensors, strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def swap(group):
    group.send(torch.ones(1), dst=1 - group.rank)


def leaves(group):
    if group.rank:
        group.all_reduce(torch.ones(1))


def mixed(group):
    group.all_reduce(torch.ones(1)) if group.rank else group.all_gather([], torch.ones(1))


@pytest.mark.parametrize(("work", "words"), [
    (swap, "rank 0 waits in send to rank 1, rank 1 waits in send to rank 0"),
    (leaves, "rank 0 has returned, rank 1 waits in all_reduce"),
    (mixed, "rank 0 waits in all_gather, rank 1 waits in all_reduce"),
])  # fmt: skip
def test_a_deadlock_says_where_each_rank_waits(work, words):
    before = threading.active_count()
    with pytest.raises(Deadlock, match=words):
        World(2).run(work)
    failure = perform(Call("work", ranks=2, group=GROUP), {"work": work}).failure
    assert failure.kind == "Deadlock" and words in failure.text
    time.sleep(0.2)
    assert threading.active_count() == before


def lost(group):
    if group.rank == 1:
        raise KeyError("lost")
    group.all_reduce(torch.ones(1))


def beyond(group):
    group.send(torch.ones(1), dst=group.size)


def too_many(group):
    group.reduce_scatter(torch.ones(1), [torch.ones(1)] * 3)


def uneven(group):
    group.all_reduce(torch.ones(group.rank + 1))


@pytest.mark.parametrize(("work", "kind", "words"), [
    (lost, KeyError, "lost"),
    (beyond, ValueError, "there is no rank 2: ranks are 0 to 1"),
    (too_many, ValueError, "reduce_scatter takes a tensor per rank, not 3"),
    (uneven, ValueError, "the shapes differ between ranks"),
])  # fmt: skip
def test_an_error_of_one_rank_ends_all(work, kind, words):
    with pytest.raises(kind, match=words):
        World(2).run(work)
    failure = perform(Call("work", ranks=2, group=GROUP), {"work": work}).failure
    assert failure.kind == kind.__name__ and words in failure.text
    assert failure.rank == (1 if work is lost else failure.rank)


def test_a_rank_that_never_ends_is_stopped():
    def work(group):
        while group.rank:
            pass
        group.all_reduce(torch.ones(1))

    before = threading.active_count()
    words = r"rank 1 has computed for 0.5 .* is at line \d+ in work, `(while group.rank:|pass)`"
    with pytest.raises(TimeoutError, match=words):
        World(2, seconds=0.5).run(work)
    time.sleep(0.5)
    assert threading.active_count() == before


def test_a_loop_of_talk_ends_in_a_check():
    def work(group):
        while True:
            group.all_reduce(torch.ones(1))

    failure = perform(Call("work", ranks=2, group=GROUP), {"work": work}).failure
    assert f"more than {doubles.MOST_EVENTS} times" in failure.text


def test_gradients_may_be_off_on_ranks_as_they_are_outside():
    with torch.no_grad():
        assert World(2).run(lambda group: torch.is_grad_enabled()) == [False, False]


# The plan


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "Qwen3-235B-A22B"])
def test_the_plan_counts_the_parameters_of_the_model(name):
    total, _ = count_parameters(PRESETS[name])
    assert sum(weights(PRESETS[name])) == pytest.approx(total, rel=1e-4)  # norms do not count
    alone = serving(PRESETS[name], Layout(1), texts=1, context=1)
    assert alone["GB"] == pytest.approx(2e-9 * total, rel=1e-3)
    assert alone["MB sent"] == 0


def test_the_plan_counts_what_the_layers_send():
    config = on_ranks.Qwen3Config(**on_ranks.SIZES, **on_ranks.EXPERTS)
    planned = serving(config, Layout(4, tensor=4), texts=1, context=1)["MB sent"]

    def sent(group):
        part = shard_model(config, on_ranks.model_of(**on_ranks.EXPERTS)[1].state_dict(), group)
        with torch.no_grad():
            part(torch.tensor([[3]]))
        return [size for kind, size, _ in group.log if kind == "all_reduce"]

    sizes = World(4).run(sent)[0]
    attention = sizes[1]  # after the embedding's
    assert planned == pytest.approx(2 * config.num_hidden_layers * attention / 2 / 1e6)


def test_bubbles_are_those_of_the_formula():
    for kind in ("gpipe", "1f1b"):
        for stages, micro in ((4, 8), (3, 3), (2, 7)):
            work = busy([pipeline_schedule(s, stages, micro, kind) for s in range(stages)])
            assert work.size(1) == 3 * (micro + stages - 1)
            assert int((work == 0).sum()) == 3 * stages * (stages - 1)
    with pytest.raises(ValueError, match="no stage"):
        busy([[("B", 0)], [("F", 0), ("B", 0)]])


def test_parts_are_refused_that_ranks_cannot_divide():
    group = doubles.group(rank=1, size=4)
    assert part_of(12, group) == slice(3, 6)
    with pytest.raises(ValueError, match="10 rows cannot be divided among 4 ranks"):
        part_of(10, group)
