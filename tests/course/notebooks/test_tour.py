"""Lab 00: the practice, and what lets a model talk and be looked into."""

import pytest
import torch

import solutions.generation
from labkit.author.mistakes import mistakes_of
from labkit.checks.diagnose import diagnose
from labkit.checks.reference import RecordedReference
from labkit.checks.runner import run_checks
from labkit.core.syllabus import NOTEBOOKS, find_exercise, find_lab
from labkit.learner import models
from labkit.learner.check import SEED
from labkit.model import checkpoint
from labkit.model.inspect import attention_weights
from labkit.sandboxed.call import perform

STORIES = checkpoint.resolve("stories-dense")


@pytest.mark.parametrize(
    "mistake", mistakes_of(find_lab("tour", NOTEBOOKS)), ids=lambda mistake: mistake.name
)
def test_the_practice_names_every_mistake(mistake):
    lab, exercise = find_exercise("0.1")
    oracle = RecordedReference(lab.module)
    student = lambda call: perform(call, mistake.namespace)  # noqa: E731
    result = run_checks("visible", lab.module, exercise, student, oracle.reference, SEED)
    assert not result.passed and mistake.sentence in diagnose(result, oracle).sentences


def test_attention_weights_are_shares():
    """Of the course's model, and of one whose classes are in no module that is imported."""
    ids, weights = torch.arange(12)[None], []
    for code in (models.reference(), models._yours(models.DECODER_LABS, True)):
        weights.append(attention_weights(checkpoint.load(STORIES, code).float(), ids))
    assert weights[0].shape == (4, 1, 4, 12, 12) and weights[0].triu(1).max() == 0
    torch.testing.assert_close(weights[0].sum(dim=-1), torch.ones(4, 1, 4, 12))
    torch.testing.assert_close(*weights)


def test_it_says_what_the_reference_writes(capsys):
    model, tokenizer = models.load_chat_model()
    ids = torch.tensor([tokenizer.encode("Anna was")])
    written = solutions.generation.generate(
        model, ids, max_new_tokens=250, eos_token_id=sorted(tokenizer.stop_ids)
    )
    told = models.say(model, tokenizer, "Anna was")
    assert told and told == tokenizer.decode(written[0, ids.size(1) :].tolist())
    printed = capsys.readouterr().out
    assert " ".join(printed.split()).endswith(" ".join(told.split()))
    lines = printed.splitlines()
    assert max(len(line.rpartition(" ")[0]) for line in lines) < 72  # a word begins before that
    assert max(map(len, lines)) <= 80  # and its rest, which comes later, ends soon after
