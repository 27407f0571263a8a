"""Lab 00: its exercise, and the functions with which a model talks and is inspected."""

import torch
from test_notebooks import answer

import solutions.generation
from labkit.author.owned_cells import setup_cell
from labkit.course.syllabus import NOTEBOOKS, find_lab
from labkit.learner import models
from labkit.model import checkpoint
from labkit.model.inspect import attention_weights

STORIES = checkpoint.resolve("stories-dense")


def test_the_practice_names_mistakes(run):
    run(setup_cell(find_lab("tour", NOTEBOOKS)))
    right = answer("0.1")
    for old, new, sentence in (
        ("logits[:, -1]", "logits", "only the last one says what comes next"),
        ("[:, -1]", "[:, 0]", "it reads the scores at the first token"),
        ("[:, -1]", "[-1]", "it reads the last text of the batch"),
        ("argmax(", "argmin(", "it takes the lowest score"),
        ("[:, -1], dim=-1)", "[:, -1])", "so all texts get one id"),
        ("dim=-1", "dim=0", "the vocabulary is the last axis"),
    ):
        assert old in right
        run(right.replace(old, new))
        report = run('check("0.1")')
        assert "not yet" in report and sentence in report
    run(right)
    assert "passed" in run('check("0.1")')


def test_attention_weights_are_shares():
    """For the course's model, and for one whose modules are not in sys.modules"""
    ids, weights = torch.arange(12)[None], []
    for code in (models.reference(), models.complete(models.DECODER_LABS)):
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
    # a word begins before column 72 and ends by column 80
    assert max(len(line.rpartition(" ")[0]) for line in lines) < 72
    assert max(map(len, lines)) <= 80
