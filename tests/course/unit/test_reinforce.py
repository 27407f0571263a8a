"""Learning from the reader: which sentence is credited with what, and what is asked."""

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest
import torch
from tiny import random_model

from labkit.pretrain.data import IGNORE
from labkit.pretrain.reinforce import (
    Part,
    Told,
    advantages,
    answers,
    judged,
    objectives,
    tell_all,
    wishes,
)
from labkit.pretrain.reinforce.answers import asked, conversations, losses
from labkit.pretrain.reinforce.drills import (
    in_few_words,
    questions,
    who_has_how_many,
    who_has_what,
    who_is_where,
)
from labkit.stories import END_OF_TURN, FEWEST, LISTENED, plots, stories, tell
from labkit.stories.beyond import HONEST
from labkit.stories.grammar import noun, read_question
from labkit.stories.questions import UNTOLD, question, unfounded
from labkit.stories.reader import read_story
from labkit.stories.words import CONTAINERS, NUMBERS, PLACE_OF_SPOT, QUESTIONS
from solutions.generation import KVCache, generate

# words that answers have beside those of the story
OF_ANSWERS = {
    "She", "Nobody", "Nothing", "Yes", "The", "Because", "found", "hid", "gave", "her", "him",
    "fixed", "the", "has", "not", "ate", "lost", "she", "broke", "did", "there",
}  # fmt: skip
SOUND = [
    "Max was a fox.", "Max was in the park.", "He had a red ball.", "Max lost the ball.",
    "He was sad.",
]  # fmt: skip


def number_words(sentences):
    return re.sub(r"\d+", lambda digits: NUMBERS[int(digits[0]) - 1], " ".join(sentences))


def pieces_of(tokenizer, text):
    return [tokenizer.decode([token]) for token in tokenizer.encode(text).ids]


# stories that the model tells


def test_the_first_flaw_is_found_to_the_token(tokenizer):
    for wrong, kind in (
        ("He went to the park.", "go"),  # he is there
        ("Max was a fox.", "intro"),  # told before
        ("Max the of ball.", ""),  # no meaning
    ):
        for place in (3, 5):
            sentences = [*SOUND[:place], wrong, "He was sad.", *SOUND[place:]]
            pieces = pieces_of(tokenizer, " ".join(sentences))
            parts = judged(pieces, ended=True, least=FEWEST)
            assert [part.sound for part in parts] == [True] * place + [False], wrong
            assert parts[-1].kind == kind
            texts = ["".join(pieces[part.start : part.end]).strip() for part in parts]
            assert texts == sentences[: place + 1]  # and nothing of what follows


def test_a_story_has_to_be_long_enough_and_any_text_is_judged(tokenizer):
    pieces = pieces_of(tokenizer, " ".join(SOUND))
    for least, sound in ((5, True), (6, False)):
        parts = judged(pieces, ended=True, least=least)
        assert parts[-1] == Part(len(pieces), len(pieces) + 1, "end", sound)
        assert all(part.sound for part in parts[:-1])
        assert Told([1], [5], parts).sound == sound
    assert not Told([1], [5], judged(pieces, ended=False, least=5)).sound
    for text in ("", " ", "?!", "Max  was\na fox. Max was  in the park.", "\ufffd. a"):
        for ended in (False, True):
            for part in judged(list(text), ended, 5):
                assert 0 <= part.start <= part.end <= len(text) + 1


def test_a_kind_is_not_told_less_often_for_being_hard():
    """What is wrong half of the time gains when right what it loses when wrong."""
    hard = [Part(0, 1, "give", number % 2 == 0) for number in range(1000)]
    easy = [Part(0, 1, "be", True) for _ in range(1000)]
    worth = [gain for [gain] in advantages([[part] for part in hard + easy])]
    assert worth[0] == pytest.approx(0.5, abs=0.01)
    assert worth[1] == pytest.approx(-0.5, abs=0.01)
    assert abs(sum(worth[:1000])) < 2 and 0 <= worth[1000] < 0.01
    alone = [Part(0, 1, "", False)]
    assert advantages([alone]) == [[0]]  # nothing to compare it with
    assert advantages([alone, *[[part] for part in easy]])[0][0] < -0.7


def test_sound_sentences_become_likelier_and_nothing_else():
    """The gradient of the scores at every token, with scores that are the parameter."""
    tokens = [4, 5, 6, 7, 8]
    parts = [Part(0, 2, "be", True), Part(2, 4, "go", False)]
    flawed = Told([1, 2], tokens, parts)
    flawless = Told([1], tokens, [Part(0, 4, "go", True), Part(4, 5, "end", True)])
    scores = torch.zeros(2, 6, 9, requires_grad=True)
    sum(objectives([flawed, flawless], 1.0, lambda ids: scores[:, : ids.size(1)])).backward()
    short, long = scores.grad  # the shortest first
    gain = lambda grad, place: -grad[place, tokens[place]].item()  # noqa: E731
    assert all(gain(short, place) > 0 for place in range(4))
    assert torch.equal(long[0], torch.zeros(9))  # of the prompt
    assert gain(long[1:], 0) > 0 > gain(long[1:], 2)
    assert torch.equal(long[5], torch.zeros(9))  # of what follows the flaw


def test_stories_are_told_as_generate_tells_them(tokenizer):
    model = random_model()
    prompts = [tokenizer.encode(text).ids for text, _ in wishes(range(6))]
    stops = set(range(0, 300, 7))  # so that some end early
    written = tell_all(model, KVCache(2, 512), prompts, 1e-6, torch.Generator(), stops)
    assert len({len(tokens) for tokens in written}) > 2
    for ids, tokens in zip(prompts, written, strict=True):
        [row] = generate(model, torch.tensor([ids]), max_new_tokens=280, eos_token_id=[*stops])
        assert tokens == row[len(ids) :].tolist()


def test_most_wishes_are_for_long_stories_and_they_differ():
    found = wishes(range(100))
    assert found == wishes(range(100)) and 60 < sum(long for _, long in found) < 80
    assert all(("long" in text) == long for text, long in found)
    assert len({text for text, _ in found}) > 75


# questions


def test_every_question_is_asked_by_itself_after_the_story_is_read_once(tokenizer, monkeypatch):
    model = random_model().train()
    asked_stories = [asked(tokenizer, number, 512, drilled=0.5) for number in range(5)]
    assert len({item.story.size(1) for item in asked_stories}) > 2  # padded on the left
    total, counted = 0, 0
    for item in asked_stories:
        text = tokenizer.decode(item.story[0].tolist(), skip_special_tokens=False)
        texts = set()
        for rest, labels in zip(item.input_ids, item.labels, strict=True):
            ids = torch.cat((item.story[0], rest))[None]
            scores = model(ids)[0, item.story.size(1) - 1 : -1]  # as if asked alone
            total = total + torch.nn.functional.cross_entropy(
                scores, labels, ignore_index=IGNORE, reduction="sum"
            )
            counted += (labels != IGNORE).sum()
            whole = tokenizer.decode(ids[0].tolist(), skip_special_tokens=False)
            answer = tokenizer.decode(labels[labels != IGNORE].tolist(), False)
            assert answer.endswith(END_OF_TURN) and len(answer) > len(END_OF_TURN) + 5
            assert whole.startswith(text) and answer in whole
            texts.add(whole)
        assert len(texts) == len(item.labels) > 1  # no question twice
    weights = list(model.parameters())
    expected = torch.autograd.grad(total / counted, weights)
    for together in (1, 3, 9):
        monkeypatch.setattr(answers, "TOGETHER", together)
        loss = sum(losses(asked_stories, model))
        torch.testing.assert_close(loss, total / counted)
        gradients = torch.autograd.grad(loss, weights)
        torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=1e-3)


def test_a_story_that_does_not_fit_is_not_asked_about(tokenizer):
    most = asked(tokenizer, 5, 512).story.size(1)
    short = asked(tokenizer, 5, most)
    assert short.story.size(1) + short.input_ids.size(1) <= most


def test_answers_are_right_and_what_has_to_be_followed_is_asked():
    story = read_story(
        "In a little house lived a fox named Felix. He had a yellow teapot. He met a painter "
        "named Rosie. Felix gave the teapot to Rosie."
    )
    open_questions = reworded = 0
    for seed in range(200):
        found = dict(questions(story.world, Random(seed), QUESTIONS))
        untold = [words for words, reply in found.items() if reply == UNTOLD]
        open_questions += len(untold)
        assert all(story.answer(words) is None and found.pop(words) for words in untold)
        kinds = [read_question(words)[0] for words in found]
        assert {"where_thing", "who_has"} < set(kinds) and len(kinds) == 4
        reworded += sum(
            question(story.world, *read_question(words)) != words for words in found
        )
        assert all(story.answer(words) == reply for words, reply in found.items())
    assert 80 < open_questions < 120 and 150 < reworded < 270  # of 200, and of 800 questions


def test_without_a_story_the_answer_is_honest(tokenizer, monkeypatch):
    monkeypatch.setattr(answers, "ALONE", 1.0)
    seen = set()
    for number in range(30):
        item = asked(tokenizer, number, 512)
        for rest in item.input_ids:
            ids = torch.cat((item.story[0], rest)).tolist()
            text = tokenizer.decode(ids, skip_special_tokens=False)
            words, answer, *more = text.split("\n", 1)[1].split(END_OF_TURN)
            assert answer.endswith(HONEST[-1]) and len(more) == 1 and "\n" not in words
            seen.add(words)
    assert any(text.startswith(("where is ", "Where is ")) for text in seen) and len(seen) > 40


def test_stories_are_brought_typed_or_told_and_others_may_be_asked_before():
    names = zip("uvwxy", "ABCDE", strict=True)
    wanted = {f"Who has the {x}?": f"{name} has it." for x, name in names}
    seen = Counter()
    for seed in range(100):
        found = conversations(Random(seed), "A story.", list(wanted.items()), str)
        for messages, reply in found:
            text = "\n".join(messages)
            assert "A story." in text
            if reply == LISTENED:
                assert messages == ["A story."]
                continue
            last = messages[-1].removeprefix("A story.").strip()
            assert wanted[last] == reply and text.count(last) == 1
            earlier = [words for words in wanted if words in text and words != last]
            assert all(f"{words}\n{wanted[words]}" in text for words in earlier)
            told = messages[1:2] == ["A story."]
            layout = "typed" if LISTENED in messages else "told" if told else "brought"
            seen.update([layout, len(earlier)])
    assert min(seen[key] for key in ("typed", "told", "brought", 0, 1, 2)) > 30
    pair = ("Who has the u?", "A has it.")
    assert conversations(Random(0), "", [pair], str) == [([pair[0]], pair[1])]


def test_what_nobody_said_of_those_in_the_story_is_asked_too():
    kinds = Counter()
    for story in islice(stories(3), 150):
        reading = read_story(story.text)
        words = unfounded(reading.world, Random(story.text))
        assert reading.answer(words) is None
        names = re.findall(r"\b[A-Z]\w+", words)[1:]
        assert all(name in reading.world.people for name in names)
        kinds[" ".join(words.split()[:2])] += 1
    assert len(kinds) >= 9 and kinds.most_common(1)[0][1] < 45


# drills


@pytest.mark.parametrize("drill", [who_has_what, who_is_where, in_few_words])
def test_a_drill_can_be_answered_from_its_sentences(drill):
    lengths = Counter()
    for seed in range(100):
        sentences, wanted = drill(Random(seed))
        lengths[len(sentences)] += 1
        text = number_words(sentences)
        known = {*re.findall(r"\w{3,}", text), *OF_ANSWERS}
        reading = read_story(text)
        for words, reply in wanted:
            if reply != UNTOLD:
                assert set(re.findall(r"\w{3,}", reply)) <= known, (text, words, reply)
            elif drill is not in_few_words:  # whose forms the reader does not know
                assert reading.answer(words) is None
        assert len(dict(wanted)) == len(wanted) >= (1 if drill is in_few_words else 2)
    assert min(lengths) <= 3 and max(lengths) >= 4


def test_in_a_drill_it_counts_who_and_what_is_asked_for():
    """An answer with any name or place of the drill is often wrong."""
    seen = Counter()
    for seed in range(100):
        _, wanted = who_has_what(Random(seed))
        has = [(words, reply) for words, reply in wanted if "Who has " in words]
        seen["gone"] += any(reply.startswith(("He is", "She is")) for _, reply in wanted)
        seen["laid"] += any(reply.startswith("It is") for _, reply in wanted)
        seen["owners"] += len({reply for _, reply in has} - {UNTOLD}) > 1
        seen["twins"] += any(read_question(x)[1]["x"].count(" ") for x, _ in has)
        places = {reply.split("is ")[-1] for _, reply in who_is_where(Random(seed))[1]}
        seen["places"] += len(places - {UNTOLD}) > 1
        if story := tell(Random(seed), choices=[plots.belongings]):
            things = read_story(story.text).world.things.values()
            seen["apart"] += len(things) >= 4 and len({thing.where for thing in things}) > 1
    assert min(seen["owners"], seen["places"], seen["apart"], 3 * seen["twins"]) > 60
    assert min(seen["gone"], seen["laid"]) > 40


def test_a_drill_of_numbers_has_to_be_counted():
    differ = computed = 0
    for seed in range(150):
        sentences, wanted = who_has_how_many(Random(seed))
        text = number_words(sentences)
        reading = read_story(text)
        assert not reading.contradictions or "nobody" in str(reading.contradictions)
        counts = [("no", *NUMBERS)[n] for n in reading.world.counts.values()]
        assert [reply.split()[2] for _, reply in wanted[:2]] == counts
        differ += counts[0] != counts[1]
        for words, reply in wanted:
            if reply != UNTOLD and words.startswith("How many"):
                computed += not re.search(rf"\b{reply.split()[2]}\b", text)
    assert differ > 100 and 15 < computed < 150


def test_a_drill_in_few_words_has_what_no_document_has():
    texts, spots, guessed = set(), set(), set()
    answered = untold = digits = refused = 0
    for seed in range(400):
        sentences, wanted = in_few_words(Random(seed))
        text = " ".join(sentences)
        texts.add(text)
        for words, reply in wanted:
            answered += reply != UNTOLD
            untold += reply == UNTOLD
            if reply == UNTOLD and any(name in text for name in words.split()):
                guessed.add(" ".join(words.split()[:2]))
            spot = re.fullmatch(r"(?:It is|.*e (?:hid|found) it) ([a-z ]+ the (.+))\.", reply)
            if spot and spot[2] not in CONTAINERS:
                assert spot[1] in text
                spots.add(spot[1])
            if count := re.search(r"has (\w+) \w+\.", reply):
                digits += count[1] not in text and str(NUMBERS.index(count[1]) + 1) in text
            gift = re.fullmatch(r"Did \w+ give the (.+) to \w+\?", words)
            refused += bool(gift and reply.startswith("No, ") and noun(gift[1]) in text)
    for words in (r"ate a \w+", "eats the", "has got", "is hungry", "gives", r"\w, and [A-Z]"):
        assert re.search(words, " ".join(texts)), words
    assert len(texts) > 390 and 0.1 < untold / (answered + untold) < 0.35
    assert {"Where is", "Who is", "How many"} <= guessed
    assert len(spots - set(PLACE_OF_SPOT)) > len(spots & set(PLACE_OF_SPOT)) > 5
    assert digits > 10 and refused > 3
