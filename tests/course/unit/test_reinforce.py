"""Learning from the reader: who is credited, with what, and that it is learnt."""

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest
import torch

import solutions
from labkit.pretrain.data import IGNORE
from labkit.pretrain.parallel import Team
from labkit.pretrain.recipe import Recipe
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
from labkit.pretrain.run_folder import Run
from labkit.pretrain.stories import END_OF_TURN, FEWEST, LISTENED, plots, stories, tell
from labkit.pretrain.stories.beyond import HONEST
from labkit.pretrain.stories.grammar import noun, read_question
from labkit.pretrain.stories.questions import UNTOLD, question, unfounded
from labkit.pretrain.stories.reader import read_story
from labkit.pretrain.stories.tokenizer import train_on_stories
from labkit.pretrain.stories.words import CONTAINERS, NUMBERS, PLACE_OF_SPOT, QUESTIONS
from labkit.pretrain.trainer import Trainer
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM
from solutions.generation import KVCache, generate

MODEL = {
    "model_type": "qwen3", "vocab_size": 300, "hidden_size": 24, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "rope_theta": 1e4, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip
RECIPE = {
    "model": MODEL, "steps": 3, "batch_size": 2, "sequence_length": 400, "warmup_steps": 1,
    "asked": 2, "told": 4, "save_every": 1, "validate_every": 9,
    "validation_documents": 2, "tokenizer_documents": 40, "precision": "float32",
    "saved_dtype": "float32",
}  # fmt: skip
SAID = {  # what answers say of their own
    "She", "Nobody", "Nothing", "Yes", "The", "Because", "found", "hid", "gave", "her", "him",
    "fixed", "the", "has", "not", "ate", "lost", "she", "broke", "did", "there",
}  # fmt: skip
SOUND = [
    "Max was a fox.", "Max was in the park.", "He had a red ball.", "Max lost the ball.",
    "He was sad.",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return train_on_stories(40, 300)


def without_digits(sentences):
    return re.sub(r"\d+", lambda digits: NUMBERS[int(digits[0]) - 1], " ".join(sentences))


def pieces_of(tokenizer, text):
    return [tokenizer.decode([token]) for token in tokenizer.encode(text).ids]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("He went to the park.", "go"),  # where he is
        ("Max was a fox.", "intro"),  # said before
        ("Max the of ball.", ""),  # no meaning
    ],
)
@pytest.mark.parametrize("place", [3, 5])
def test_the_first_flaw_is_found_to_the_token(tokenizer, wrong, kind, place):
    told = [*SOUND[:place], wrong, "He was sad.", *SOUND[place:]]
    pieces = pieces_of(tokenizer, " ".join(told))
    parts = judged(pieces, ended=True, least=FEWEST)
    assert [part.sound for part in parts] == [True] * place + [False]
    assert parts[-1].kind == kind
    said = ["".join(pieces[part.start : part.end]).strip() for part in parts]
    assert said == told[: place + 1]  # and nothing of what follows


@pytest.mark.parametrize(("least", "sound"), [(5, True), (6, False)])
def test_a_story_has_to_be_long_enough(tokenizer, least, sound):
    pieces = pieces_of(tokenizer, " ".join(SOUND))
    parts = judged(pieces, ended=True, least=least)
    assert parts[-1] == Part(len(pieces), len(pieces) + 1, "end", sound)
    assert all(part.sound for part in parts[:-1])
    assert Told([1], [5], parts).sound == sound
    assert not Told([1], [5], judged(pieces, ended=False, least=5)).sound


def test_any_text_can_be_judged(tokenizer):
    for text in ("", " ", "?!", "Max  was\na fox. Max was  in the park.", "\ufffd. a"):
        for ended in (False, True):
            for part in judged(list(text), ended, 5):
                assert 0 <= part.start <= part.end <= len(text) + 1


def test_a_kind_is_not_told_less_often_for_being_hard():
    """What half of the time is wrong gains where it is right what it loses where it is not."""
    hard = [Part(0, 1, "give", number % 2 == 0) for number in range(1000)]
    easy = [Part(0, 1, "be", True) for _ in range(1000)]
    worth = [more for [more] in advantages([[part] for part in hard + easy])]
    assert worth[0] == pytest.approx(0.5, abs=0.01)
    assert worth[1] == pytest.approx(-0.5, abs=0.01)
    assert abs(sum(worth[:1000])) < 2 and 0 <= worth[1000] < 0.01
    [[lone]] = advantages([[Part(0, 1, "", False)]] + [])  # nothing to compare it with
    assert lone == 0
    assert advantages([[Part(0, 1, "", False)], *[[part] for part in easy]])[0][0] < -0.7


def test_likelier_what_was_sound_and_nothing_else():
    """The gradient of the scores at every token, with scores that are the parameter."""
    tokens = [4, 5, 6, 7, 8]
    parts = [Part(0, 2, "be", True), Part(2, 4, "go", False)]
    flawed = Told([1, 2], tokens, parts)
    flawless = Told([1], tokens, [Part(0, 4, "go", True), Part(4, 5, "end", True)])
    scores = torch.zeros(2, 6, 9, requires_grad=True)
    sum(objectives([flawed, flawless], 1.0, lambda ids: scores[:, : ids.size(1)])).backward()
    short, long = scores.grad  # those of like length together, the shortest first
    gain = lambda grad, place: -grad[place, tokens[place]].item()  # noqa: E731
    assert all(gain(short, place) > 0 for place in range(4))
    assert torch.equal(long[0], torch.zeros(9))  # the prompt is nobody's story
    assert gain(long[1:], 0) > 0 > gain(long[1:], 2)
    assert torch.equal(long[5], torch.zeros(9))  # what follows the flaw


def test_stories_are_told_as_generate_tells_them(tokenizer):
    torch.manual_seed(3)
    model = Qwen3ForCausalLM(Qwen3Config.from_dict(MODEL)).eval()
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape)
    prompts = [tokenizer.encode(text).ids for text, _ in wishes(range(6))]
    stops = set(range(0, 300, 7))  # so that some end early
    told = tell_all(model, KVCache(2, 512), prompts, 1e-6, torch.Generator(), stops)
    assert len({len(tokens) for tokens in told}) > 2
    for ids, tokens in zip(prompts, told, strict=True):
        [row] = generate(model, torch.tensor([ids]), max_new_tokens=280, eos_token_id=[*stops])
        assert tokens == row[len(ids) :].tolist()


def test_most_wishes_are_for_long_stories_and_all_differ():
    found = wishes(range(200))
    assert found == wishes(range(200)) and 120 < sum(long for _, long in found) < 160
    assert all(("long" in text) == long for text, long in found)
    assert len({text for text, _ in found}) > 150


def test_every_question_is_asked_by_itself_after_one_reading(tokenizer, monkeypatch):
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config.from_dict(MODEL))
    stories = [asked(tokenizer, number, 512, drilled=0.5) for number in range(5)]
    assert len({one.story.size(1) for one in stories}) > 2  # padded on the left
    total, counted = 0, 0
    for one in stories:
        text = tokenizer.decode(one.story[0].tolist(), skip_special_tokens=False)
        said = set()
        for rest, labels in zip(one.input_ids, one.labels, strict=True):
            ids = torch.cat((one.story[0], rest))[None]
            scores = model(ids)[0, one.story.size(1) - 1 : -1]  # as if nothing else were asked
            total = total + torch.nn.functional.cross_entropy(
                scores, labels, ignore_index=IGNORE, reduction="sum"
            )
            counted += (labels != IGNORE).sum()
            whole = tokenizer.decode(ids[0].tolist(), skip_special_tokens=False)
            answer = tokenizer.decode(labels[labels != IGNORE].tolist(), False)
            assert answer.endswith(END_OF_TURN) and len(answer) > len(END_OF_TURN) + 5
            assert whole.startswith(text) and answer in whole
            said.add(whole)
        assert len(said) == len(one.labels) > 1  # no question twice
    weights = list(model.parameters())
    apart = torch.autograd.grad(total / counted, weights)
    for together in (1, 3, 9):
        monkeypatch.setattr(answers, "TOGETHER", together)
        loss = sum(losses(stories, model))
        torch.testing.assert_close(loss, total / counted)
        for ours, theirs in zip(torch.autograd.grad(loss, weights), apart, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


def test_a_story_that_does_not_fit_is_not_asked_about(tokenizer):
    long = asked(tokenizer, 5, 512)
    most = long.story.size(1)
    short = asked(tokenizer, 5, most)
    assert short.story.size(1) + short.input_ids.size(1) <= most


def test_answers_are_right_and_what_has_to_be_followed_is_all_asked():
    story = read_story(
        "In a little house lived a fox named Felix. He had a yellow teapot. He met a painter "
        "named Rosie. Felix gave the teapot to Rosie."
    )
    open_ones, reworded = 0, 0
    for seed in range(200):
        found = dict(questions(story.world, Random(seed), QUESTIONS))
        left_open = [words for words, reply in found.items() if reply == UNTOLD]
        open_ones += len(left_open)
        assert all(story.answer(words) is None and found.pop(words) for words in left_open)
        kinds = [read_question(words)[0] for words in found]
        assert {"where_thing", "who_has"} < set(kinds) and len(kinds) == 4
        reworded += sum(
            question(story.world, *read_question(words)) != words for words in found
        )
        assert all(story.answer(words) == reply for words, reply in found.items())
    assert 80 < open_ones < 120 and 150 < reworded < 270  # of 200, and of 800 questions


def test_what_has_no_story_to_it_is_answered_honestly(tokenizer):
    seen = set()
    for number in range(400):
        one = asked(tokenizer, number, 512)
        for rest in one.input_ids:
            ids = torch.cat((one.story[0], rest)).tolist()
            text = tokenizer.decode(ids, skip_special_tokens=False)
            said, answer, *more = text.split("\n", 1)[1].split(END_OF_TURN)
            alone = "\n" not in said and ". " not in said and len(more) == 1
            if alone and not answer.endswith(LISTENED):
                assert answer.endswith(HONEST[-1])
                seen.add(said)
    assert any(text.startswith(("where is ", "Where is ")) for text in seen)
    assert any(not text.isascii() for text in seen) and 20 < len(seen) < 80


def test_stories_are_brought_typed_or_told_and_others_may_be_asked_before():
    wanted = [
        (f"Who has the {x}?", f"{name} has it.")
        for x, name in zip("uvwxy", "ABCDE", strict=True)
    ]
    layouts, earlier = Counter(), Counter()
    for seed in range(400):
        found = conversations(Random(seed), "A story.", wanted, str)
        heard = [said for said, reply in found if reply == LISTENED]
        asked_last = [(said, reply) for said, reply in found if reply != LISTENED]
        layout, before = set(), set()
        for said, reply in asked_last:
            *others, last = re.sub(r"^A story\.\s", "", "\n".join(said)).split("\n")
            layout.add(
                "typed"
                if LISTENED in said
                else "told"
                if said[1:2] == ["A story."]
                else "brought"
            )
            assert (last, reply) in wanted
            pairs = others[{"typed": 1, "told": 2, "brought": 0}[min(layout)] :]
            before.add(tuple(pairs))
        assert len(layout) == len(before) == 1
        [pairs] = before
        answered = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert answered.items() <= dict(wanted).items()
        assert not answered.keys() & {
            re.sub(r"^A story\.\s", "", said[-1]) for said, _ in asked_last
        }
        assert len(asked_last) + len(answered) == len(wanted)
        assert heard == ([["A story."]] if layout == {"typed"} and not pairs else [])
        layouts.update(layout)
        earlier[len(answered)] += 1
    assert layouts["brought"] > 170 and min(layouts["typed"], layouts["told"]) > 70
    assert earlier[0] > 150 and earlier[1] > 80 and earlier[2] > 40
    assert conversations(Random(0), "", wanted[:1], str) == [(["Who has the u?"], "A has it.")]


def test_it_is_also_asked_what_nobody_said_of_those_in_the_story():
    kinds = Counter()
    for story in islice(stories(3), 300):
        told = read_story(story.text)
        words = unfounded(told.world, Random(story.text))
        assert told.answer(words) is None
        names = re.findall(r"\b[A-Z]\w+", words)[1:]
        assert all(name in told.world.people for name in names)
        kinds[" ".join(words.split()[:2])] += 1
    assert len(kinds) >= 9 and kinds.most_common(1)[0][1] < 90


def test_a_drill_does_not_always_say_how_many_are_left():
    reckoned = 0
    for seed in range(200):
        sentences, wanted = who_has_how_many(Random(seed))
        text = without_digits(sentences)
        told = read_story(text)
        assert not told.contradictions or "nobody" in str(told.contradictions)
        for words, reply in wanted:
            if reply != UNTOLD and words.startswith("How many"):
                reckoned += not re.search(rf"\b{reply.split()[2]}\b", text)
    assert 20 < reckoned < 200


@pytest.mark.parametrize("drill", [who_has_what, who_is_where])
def test_a_drill_can_be_answered_from_its_sentences(drill):
    lengths = set()
    for seed in range(100):
        sentences, wanted = drill(Random(seed))
        lengths.add(len(sentences))
        text = " ".join(sentences)
        known = {*re.findall(r"\w{3,}", text), *SAID}
        told = read_story(text)
        for words, reply in wanted:
            if reply == UNTOLD:
                assert told.answer(words) is None
            else:
                assert set(re.findall(r"\w{3,}", reply)) <= known, (text, words, reply)
        assert len(set(wanted)) == len(wanted) >= 2
    assert min(lengths) <= 3 and max(lengths) >= 6  # as many people and moves as there may be


def test_in_a_drill_it_counts_who_and_what_is_asked_for():
    owners, twins, alone, gone, laid = 0, 0, 0, 0, 0
    for seed in range(100):
        _, has = who_has_what(Random(seed))
        told = [(read_question(words), reply) for words, reply in has if reply != UNTOLD]
        whose = {args["x"]: reply for (kind, args), reply in told if kind == "who_has"}
        owners += len(set(whose.values())) > 1
        twins += any(noun(x) != x for x in whose)
        gone += any(reply.startswith(("He is", "She is")) for _, reply in has)
        laid += any(reply.startswith("It is") for _, reply in has)
        _, where = who_is_where(Random(seed))
        places = {reply.split("is ")[1] for _, reply in where if reply != UNTOLD}
        alone += len(places) > 1
    assert owners > 70 and 20 < twins < 60 and gone > 40 and alone > 60 and laid > 40


def test_in_a_drill_of_numbers_each_has_their_own():
    apart = 0
    for seed in range(300):
        sentences, wanted = who_has_how_many(Random(seed))
        counts = read_story(without_digits(sentences)).world.counts
        told = [("no", *NUMBERS)[n] for n in counts.values()]
        assert [reply.split()[2] for _, reply in wanted[:2]] == told
        apart += told[0] != told[1]
    assert apart > 200


def test_a_few_words_suppose_what_leads_up_to_them():
    """Short sentences in past and present; what is not said is not known."""
    texts, kinds, lengths = [], Counter(), Counter()
    for seed in range(400):
        sentences, wanted = in_few_words(Random(seed))
        text = " ".join(sentences)
        texts.append(text)
        lengths[len(re.findall(r"[.]", text))] += 1
        assert sentences and wanted and len(dict(wanted)) == len(wanted)
        for words, reply in wanted:
            kinds[words.split(" the ")[0] if reply != UNTOLD else UNTOLD] += 1
            if reply != UNTOLD:  # every thing, place and number of an answer was told
                known = {*re.findall(r"\w{3,}", without_digits(sentences)), *SAID}
                assert set(re.findall(r"\w{3,}", reply)) <= known, (text, words, reply)
    assert lengths[1] > 60 and max(lengths) >= 4 and len(set(texts)) > 390
    said = " ".join(texts)
    for words in (
        r"ate a \w+",
        r"eats the",
        r"has got",
        r"is hungry",
        r"gives",
        r"\w, and [A-Z]",
    ):
        assert re.search(words, said), words
    assert len(kinds) > 25 and 0.1 < kinds[UNTOLD] / kinds.total() < 0.35


def test_a_few_words_of_what_no_document_says():
    """Spots that are new, numbers as digits, things that were not what was given."""
    spots, digits, refused = set(), 0, 0
    for seed in range(400):
        sentences, wanted = in_few_words(Random(seed))
        text = " ".join(sentences)
        for words, reply in wanted:
            found = re.fullmatch(r"(?:It is|.*e (?:hid|found) it) ([a-z ]+ the (.+))\.", reply)
            if found and found[2] not in CONTAINERS:
                assert found[1] in text
                spots.add(found[1])
            if found := re.search(r"has (\w+) \w+\.", reply):
                digits += found[1] not in text and str(NUMBERS.index(found[1]) + 1) in text
            given = re.fullmatch(r"Did \w+ give the (.+) to \w+\?", words)
            if given and reply.startswith("No, "):
                refused += noun(given[1]) in text
    assert len(spots - set(PLACE_OF_SPOT)) > len(spots & set(PLACE_OF_SPOT)) > 5
    assert digits > 10 and refused > 3


def test_what_is_easily_guessed_is_not_known():
    guessed = Counter()
    for seed in range(300):
        sentences, wanted = in_few_words(Random(seed))
        for words, reply in wanted:
            if reply == UNTOLD and any(name in " ".join(sentences) for name in words.split()):
                guessed[" ".join(words.split()[:2])] += 1
    assert guessed["Where is"] and guessed["Who is"] and guessed["How many"]


def test_in_the_drill_it_counts_what_is_asked_for():
    both = 0
    for seed in range(60):
        if told := tell(Random(seed), choices=[plots.belongings]):
            world = read_story(told.text).world
            assert not world.errors and len(world.things) >= 4
            both += len({thing.where for thing in world.things.values()}) > 1
    assert both > 40


def test_a_run_with_both_goes_on_where_it_was(tmp_path):
    def begun(name):
        run = Run(tmp_path / name, Recipe.from_dict(RECIPE))
        run.begin()
        return Trainer(run, solutions, Team(torch.device("cpu")))

    whole = begun("whole")
    assert [set(seen) >= {"answers_loss", "told_sound"} for seen in whole.steps()] == [True] * 3
    broken = begun("broken")
    next(broken.steps())
    broken.run.save(
        {
            "step": broken.step, "precision": broken.precision,
            "model": broken.model.state_dict(),
            "optimizers": [each.state_dict() for each in broken.optimizers],
        }
    )  # fmt: skip
    again = begun("broken")
    assert again.step == 1
    list(again.steps())
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name
    last = whole.run.log[-1]
    assert last["answers_loss"] > 0 and last["told_sound"] == 0
    assert last["tokens"] == 3 * 2 * 400
