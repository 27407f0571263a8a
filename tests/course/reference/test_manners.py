"""Notes on requests that a model of little stories does not grant."""

from itertools import islice
from random import Random

import pytest
from judged import JUDGED, KITE
from typer.testing import CliRunner

import solutions
from labkit.cli import app
from labkit.model import checkpoint, hub
from labkit.model.chat.manners import LISTS, Message, unknown_words, wishes
from labkit.model.chat.session import UNLIKE
from labkit.model.chat.stream import REPEATS, repeats, surprise
from labkit.model.tokenizer import Tokenizer
from storyworld import HONEST, TALK, request, stories


@pytest.mark.parametrize("text, earlier, answer, unknown, fault", JUDGED)
def test_what_is_wrong_with_an_answer(text, earlier, answer, unknown, fault):
    message = Message(text, earlier)
    assert (message.unknown, message.fault(answer)) == (unknown, fault)


def test_no_story_no_question():
    assert Message("Where is the kite?").lacks_story
    assert Message("who has the kite", ("Tell me a story.", HONEST[0])).lacks_story
    assert not Message("Where is the kite?", KITE).lacks_story
    assert not Message("Mia has a kite. Where is the kite?").lacks_story
    assert not Message("Where is Berlin?").lacks_story  # the model itself refuses


def test_true_stories_and_answers_are_never_doubted():
    rng = Random(1)
    for story in islice(stories(1_001_500), 150):
        wanted = request(story, rng)
        assert not unknown_words(wanted) and not Message(wanted).fault(story.text)[0]
        for question, answer in story.questions:
            message = Message(question, (wanted, story.text))
            assert message.fault(answer) == ("", []) and not message.lacks_story
            assert not unknown_words(f"{story.text} {question}")
    for question, answer in TALK["small_talk"]:
        assert Message(question).fault(answer) == ("", [])


def test_every_word_of_the_lists_is_a_wish():
    for words in LISTS.values():
        for word in words:
            assert wishes(f"Tell me a story about {word}.") == [word]


@pytest.mark.parametrize("name", hub.SHIPPED)
def test_beginnings_of_stories_surprise_less_than_others(name):
    model = checkpoint.load(hub.SHIPPED[name], solutions)
    tokenizer = Tokenizer(hub.SHIPPED[name])
    texts = [" ".join(s.text.split()[:9]) for s in islice(stories(1_001_700), 30)]
    assert max(surprise(model, tokenizer.encode(text)) for text in texts) < 2 < UNLIKE
    for text in ("The cat sat on the", "Mia and Ben were in the garden.", "One day, a fox"):
        assert surprise(model, tokenizer.encode(text)) > UNLIKE
    assert surprise(model, [1]) == 0.0


def test_a_text_that_repeats_itself_ends():
    for block in (["a"], list("abcdefgh")):
        assert repeats(["once", *block * REPEATS]) and not repeats(block * (REPEATS - 1))
    assert not repeats([])
    arguments = ["generate", "stories-moe", "--package", "solutions", "--temperature", "0"]
    done = CliRunner().invoke(app, [*arguments, "-p", "One day, a fox"])
    words = done.stdout.split()
    assert max(map(words.count, words)) <= REPEATS
    assert "begins like this" in " ".join(done.stderr.split())
    done = CliRunner().invoke(app, [*arguments, "-p", "def f(x):"])
    assert "not these words: def, f, x" in " ".join(done.stderr.split())


def test_chat_says_it():
    lines = "Where is the kite?\nTell me a sad story about an owl.\n"
    flags = ["--package", "solutions", "--temperature", "0"]
    done = CliRunner().invoke(app, ["chat", *flags], input=lines)
    told = " ".join(done.stderr.split())
    assert done.stdout.count("\n") == 1  # the question was not asked
    for words in (
        "no story to ask about",
        "does not understand: sad",
        "not in this story: owl",
    ):
        assert words in told
