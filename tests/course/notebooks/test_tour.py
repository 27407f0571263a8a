"""Lab 00 and what lets it talk everywhere: practice, the program, the learners' edition."""

import subprocess
import sys

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

import solutions
from labkit.author.edition import write_learners
from labkit.author.export import write_program
from labkit.author.mistakes import mistakes_of
from labkit.author.reference import reference_block
from labkit.checks.diagnose import diagnose
from labkit.checks.reference import RecordedReference
from labkit.checks.runner import run_checks
from labkit.core import cells
from labkit.core.syllabus import NOTEBOOKS, find_exercise, find_lab
from labkit.learner.check import SEED
from labkit.model import checkpoint
from labkit.model.inspect import attention_weights, shapes
from labkit.model.program import FILE, Program, generate, load_program
from labkit.sandboxed.call import perform
from solutions.generation import KVCache

STORIES = checkpoint.resolve("stories-dense")
# away with the editable install, through which the repository would answer
AWAY = """import sys
sys.meta_path = [each for each in sys.meta_path if "editable" not in repr(each).lower()]"""


@pytest.mark.parametrize(
    "mistake", mistakes_of(find_lab("tour", NOTEBOOKS)), ids=lambda mistake: mistake.name
)
def test_the_practice_names_every_mistake(mistake):
    lab, exercise = find_exercise("0.1")
    oracle = RecordedReference(lab.module)
    student = lambda call: perform(call, mistake.namespace)  # noqa: E731
    result = run_checks("visible", lab.module, exercise, student, oracle.reference, SEED)
    assert not result.passed and mistake.sentence in diagnose(result, oracle).sentences


@pytest.fixture(scope="module")
def both(edition):
    """The reference's model and the program, in float32."""
    folder = edition / "checkpoints" / "stories-dense"
    return checkpoint.load(STORIES, solutions).float(), load_program(folder)


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    return write_learners(tmp_path_factory.mktemp("learners") / "edition")


@pytest.mark.parametrize(("texts", "tokens"), [(1, 1), (2, 1), (1, 9), (3, 4)])
@torch.no_grad()
def test_the_program_computes_what_the_reference_does(both, texts, tokens):
    generator = torch.Generator().manual_seed(texts)
    ids = torch.randint(1536, (texts, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, : tokens // 2] = 0
    (plain, padded, *cached), (other, *others) = (
        [model(ids), model(ids, mask), *in_chunks(model, ids)] for model in both
    )
    assert isinstance(both[1], Program)
    for mine, theirs in zip((plain, padded, *cached), (other, *others), strict=True):
        torch.testing.assert_close(mine, theirs)
    for look in (attention_weights, lambda model, ids: torch.tensor(shape_numbers(model, ids))):
        torch.testing.assert_close(look(both[0], ids), look(both[1], ids))


def in_chunks(model, ids):
    cache = KVCache(model.config.num_hidden_layers, 3 * ids.size(1))
    return [model(part, None, cache) for part in (ids, ids[:, :1], ids)]


def shape_numbers(model, ids):
    return [size for _, _, shape in shapes(model, ids) for size in shape]


def test_attention_weights_are_shares(both):
    weights = attention_weights(both[0], torch.arange(12)[None])
    assert weights.shape == (4, 1, 4, 12, 12) and weights.triu(1).max() == 0
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, 1, 4, 12))


def test_the_plain_loop_writes_what_the_reference_writes(both):
    ids = torch.tensor([[5, 6, 7]])
    theirs = solutions.generation.generate(both[0], ids, max_new_tokens=8)
    heard = []
    mine = generate(both[1], ids, 8, on_token=lambda token: heard.append(int(token)))
    assert torch.equal(mine, theirs) and heard == mine[0, 3:].tolist()
    stop = heard[2]
    assert generate(both[1], ids, 8, eos_token_id=[stop]).size(1) == 3 + heard.index(stop) + 1


def test_the_program_quotes_nothing_of_the_reference(edition):
    data = (edition / "checkpoints" / "stories-dense" / FILE).read_bytes()
    assert b"aten" in data
    for sign in (b"stack_trace", b".py", str(edition).encode(), b"hidden_states + "):
        assert sign not in data


def test_the_learners_edition_talks(edition):
    code = f"{AWAY}\nsys.path.insert(0, '.')\nfrom labkit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "chat", "--seed", "1"], cwd=edition,
        input="Tell me a story about Anna.", capture_output=True, text=True,
    )  # fmt: skip
    assert "Anna" in done.stdout and done.stdout.count(".") > 2, done.stderr
    assert "is not written yet: the course's own program talks" in done.stderr


def test_the_tour_runs_in_the_learners_edition(edition, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(edition))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(edition / "notebooks" / "00_tour.ipynb", as_version=4)
    answer = next(cell for cell in notebook.cells if cell.id == "ex-0-1")
    answer.source = cells.plain(reference_block(*find_exercise("0.1")))
    notebook.cells.insert(0, new_code_cell(AWAY))
    resources = {"metadata": {"path": str(edition / "notebooks")}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    said = {cell.id: str(cell.get("outputs")) for cell in notebook.cells}
    assert "the course's own program" in said["talk"] and "passed" in said["check-0-1"]
    assert (edition / "tinyllm" / "tour.py~").exists()


def test_a_mixture_of_experts_is_refused_as_a_program(tmp_path):
    with pytest.raises(ValueError, match="dense"):
        write_program(checkpoint.resolve("stories-moe"), tmp_path)
