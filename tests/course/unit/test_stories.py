"""The stories say what happened, the reader understands all of it, and lies are caught."""

import hashlib
from itertools import islice
from random import Random

import pytest

from labkit.pretrain.stories import (
    END_OF_TEXT,
    END_OF_TURN,
    FEWEST,
    HURRIED,
    REQUESTS,
    SPLITS,
    beyond,
    hurried,
    long_stories,
    prompt,
    split_text,
    stories,
    training_text,
)
from labkit.pretrain.stories import reader as story_reader
from labkit.pretrain.stories import tokenizer as story_tokenizer
from labkit.pretrain.stories.events import RULES
from labkit.pretrain.stories.grammar import Writer, noun
from labkit.pretrain.stories.plots import PLOTS
from labkit.pretrain.stories.questions import ANSWERS
from labkit.pretrain.stories.reader import (
    measure,
    mix,
    read_story,
    shares,
    split_sentences,
)
from labkit.pretrain.stories.teller import Teller
from labkit.pretrain.stories.words import (
    BOYS,
    GENDER,
    GIRLS,
    GROUPS,
    KINDS,
    PLACE_OF_SPOT,
    PLACES,
    PLURALS,
    QUESTIONS,
    THINGS,
)
from labkit.pretrain.stories.world import STEPS, World

FINGERPRINT = "50c9fb75d9a8"  # the same on Python 3.10 to 3.13; change it with the stories


def reasons(text):
    reading = read_story(text)
    assert not reading.not_understood, reading.not_understood
    return [why for _, why in reading.contradictions]


def test_every_step_and_every_question_is_known_and_used():
    assert {name for rule in RULES.values() for name, *_ in rule} == set(STEPS)
    assert set(ANSWERS) == set(QUESTIONS)


@pytest.mark.parametrize("seed", [0, 1, 2, 1_000_000, 1_001_000])
def test_reader_understands_and_believes_every_story(seed):
    for story in islice(stories(seed), 400):
        reading = read_story(story.text)
        assert not reading.not_understood and not reading.contradictions, story.text
        assert reading.sound
        for question, answer in story.questions:
            assert reading.answer(question) == answer, (story.text, question)


def test_reader_understands_and_believes_long_stories():
    for story in islice(long_stories(0), 200):
        reading = read_story(story.text)
        assert reading.sound and "The next day, " in story.text, story.text
        assert len(reading.sentences) >= 2 * FEWEST
        for question, answer in story.questions:
            assert reading.answer(question) == answer, (story.text, question)


@pytest.mark.parametrize("plot", PLOTS)
def test_parsed_events_are_the_told_events(plot):
    rng = Random(plot.__name__)
    for _ in range(100):
        teller = Teller(rng, World())
        plot(teller)
        reading = read_story(" ".join(Writer(rng).text(teller.events)))
        assert len(reading.parsed) == len(teller.events)
        for (kind, read_args), (told_kind, args, _) in zip(
            reading.parsed, teller.events, strict=True
        ):
            shown = {k: v for k, v in read_args.items() if k not in "gh"}
            assert kind == told_kind
            assert shown.items() <= args.items()


HEAD = "A girl named Anna was in the park. Anna had a red ball. There Anna met Ben, a boy. "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + "Ben gave the ball to Anna.", "Ben does not have the red ball: Anna has it"),
        (HEAD + "Ben went to the park.", "Ben is in the park already"),
        (HEAD + "Ben was in the garden.", "Ben is in the park, not in the garden"),
        (HEAD + "Anna liked the blue ball.", "nobody has spoken of a blue ball yet"),
        (HEAD + "Mia laughed.", "nobody has spoken of Mia yet"),
        (HEAD + "Anna put the ball under the bed.", "'under the bed' is not in the park"),
        (HEAD + "Ben thanked Anna.", "Ben has nothing to thank Anna for"),
        (HEAD + "Anna clapped his hands.", "'his' does not mean Anna"),
        (HEAD + "Anna ate the ball.", "nobody eats a red ball"),
        (HEAD + "Anna read the ball.", "nobody read a ball"),
        (HEAD + "Anna got wet.", "it does not rain"),
        (HEAD + "Anna was sad. Anna laughed.", "Anna is sad, and nothing has cheered Anna up"),
        (HEAD + "Ben fixed the ball.", "the red ball is not broken"),
        (HEAD + "Ben had a ball.", "the red ball is introduced twice"),
        (HEAD + "Anna was not hungry any more.", "Anna has not eaten"),
        (
            HEAD + "Anna lost the ball. Anna looked under the bench, but it was not there. "
            "She found the ball under the bench.",
            "the red ball was not under the bench",
        ),
        (
            HEAD + "Anna was carrying a box. She put the ball into the box. "
            "Ben gave the ball to Anna.",
            "Ben does not have the red ball: it is in the box",
        ),
        (
            HEAD + "Ben went to the hill. Anna gave the ball to Ben.",
            "Anna is in the park, but Ben is on the hill",
        ),
        (
            HEAD + "Anna found two apples. Anna ate three apples.",
            "Anna has only 2 apples",
        ),
        (HEAD + "Anna found two apples. She had four apples left.", "Anna has 2 apples, not 4"),
        (
            HEAD + "Ben went to the hill. Ben sat beside Anna.",
            "Anna is in the park, but Ben is on the hill",
        ),
        (HEAD + "So now Ben had the ball.", "Ben does not have the red ball: Anna has it"),
        (HEAD + "The next day, Ben went to the park.", "Ben is in the park already"),
        (
            HEAD + "That night, Ben was sad. In the afternoon, Anna was happy.",
            "'In the afternoon' comes after a later hour",
        ),
    ],
)
def test_contradictions_are_named(text, why):
    assert reasons(text)[:1] == [why]


@pytest.mark.parametrize(
    "sentence",
    [
        "Anna did not have the ball.",
        "Anna gave the ball.",
        "Anna gave a ball the Ben.",
        "Anna found two apple.",
        "Anna found a apples.",
        "Anna was at the garden.",
        "Anna had a orange hat.",
        "Then The ball broke.",
        "The the the",
        '"Where is my ball',
        "\x00 \ud800 <|im_end|>",
        "anna was happy.",
    ],
)
def test_broken_sentences_are_not_understood(sentence):
    assert len(read_story(sentence).not_understood) == len(split_sentences(sentence)) > 0


def test_answers_to_a_story_written_by_hand():
    story = read_story(
        HEAD + "She lost the ball. She was sad. Ben looked under the bench and found the ball. "
        '"Here is your ball, Anna," said Ben. "Thank you, Ben!" said Anna. '
        "A basket stood there. Anna found three apples. She gave Ben two apples. "
        "Anna hid the ball behind the statue. Ben walked to the garden."
    )
    assert story.not_understood == ["A basket stood there."]
    assert not story.contradictions
    for question, answer in [
        ("Where is the ball?", "It is behind the statue."),
        ("Where is the red ball?", "It is behind the statue."),
        ("Who has the ball?", "Nobody has it."),
        ("Where is Ben?", "He is in the garden."),
        ("Where is Anna?", "She is in the park."),
        ("Did Ben give the ball to Anna?", "Yes, he did."),
        ("Did Anna give the ball to Ben?", "No, she did not."),
        ("Who gave the ball to Anna?", "Ben gave it to her."),
        ("How many apples does Anna have?", "She has one apple."),
        ("How many apples does Ben have?", "He has two apples."),
        ("Who found the ball?", "Ben found it."),
        ("Where did Ben find the ball?", "He found it under the bench."),
        ("Where did Anna hide the ball?", "She hid it behind the statue."),
        ("Why was Anna sad?", "Because she lost the ball."),
        ("What colour is the ball?", "It is red."),
        ("Who is Ben?", "Ben is a boy."),
        ("Where is the kite?", None),
        ("Is Anna hungry?", None),
        ("Did it rain?", None),
        ("What is the meaning of life?", None),
    ]:
        assert story.answer(question) == answer, question


def test_a_new_day_lets_people_feel_anew_and_leaves_things_where_they_are():
    assert not reasons(HEAD + "Ben was happy. The next day, Ben went to the hill. Ben was sad.")
    assert reasons(HEAD + "Ben was happy. Ben was sad.")
    story = read_story(HEAD + "Anna gave Ben the ball. The next day, Anna went to the hill.")
    assert story.answer("Who has the ball?") == "Ben has it."


def test_strange_requests_name_nothing_that_a_story_knows():
    """What models are measured on shares no topic and no question with training."""
    for kind in (beyond.TOPICS, beyond.QUESTIONS):
        train, test = (
            set(words.split()) if isinstance(words, str) else set(words)
            for words in (kind["train"], kind["test"])
        )
        assert not train & test
    topics = {word for words in beyond.TOPICS.values() for word in words.split()}
    known = {*GENDER, *KINDS, *GROUPS, *PLACES, *PLURALS, *PLURALS.values()}
    known |= {word for spot in PLACE_OF_SPOT for word in spot.split()}
    assert not topics & known
    asked = beyond.distinct("test", 1_001_000, 50, REQUESTS, GIRLS)
    assert len(set(asked)) == 50 and all(map(str.isascii, asked))


# lies


def corrupt(text, how, rng):
    """One change of one word or sentence; None where there is nothing to change."""
    sentences = split_sentences(text)
    if how == "order":
        i = rng.randrange(len(sentences) - 1)
        sentences[i], sentences[i + 1] = sentences[i + 1], sentences[i]
        return " ".join(sentences)
    if how == "drop":
        del sentences[rng.randrange(len(sentences) - 1)]
        return " ".join(sentences)
    swaps = {
        "negate": [
            (" was ", " was not "),
            (" had ", " did not have "),
            (" gave ", " never gave "),
        ],
        "name": [(name, rng.choice(GIRLS + BOYS)) for name in GIRLS + BOYS],
        "gender": [(" her ", " his "), (" his ", " her "), ("She ", "He "), ("He ", "She ")],
        "place": [(f"the {p}", f"the {rng.choice(list(PLACES))}") for p in PLACES],
        "spot": [(s, rng.choice(list(PLACE_OF_SPOT))) for s in PLACE_OF_SPOT],
        "object": [(f" {thing}", f" {rng.choice(list(THINGS))}") for thing in THINGS],
    }
    if how == "name in the story":
        names = [name for name in GIRLS + BOYS if name in text]
        options = [(a, b) for a in names for b in names if a != b]
    else:
        options = [(old, new) for old, new in swaps[how] if old != new]
    places = [
        (i, old, new) for i, s in enumerate(sentences) for old, new in options if old in s
    ]
    if not places:
        return None
    i, old, new = rng.choice(places)
    sentences[i] = sentences[i].replace(old, new, 1)
    return " ".join(sentences)


# of 600 corrupted stories, at least this share is caught (what is left is often no lie:
# "Ben laughed" for "Anna laughed" contradicts nothing)
LEAST_CAUGHT = {
    "name": 0.9,
    "name in the story": 0.85,
    "gender": 0.9,
    "place": 0.7,
    "spot": 0.7,
    "object": 0.85,
    "negate": 0.98,
    "order": 0.55,
    "drop": 0.55,
}


def detection(how, count=600):
    """(caught, contradicted) among corrupted stories."""
    rng = Random(how)
    caught = contradicted = done = 0
    for story in stories(SPLITS["test"][0]):
        text = corrupt(story.text, how, rng)
        if text is None:
            continue
        reading = read_story(text)
        contradicted += bool(reading.contradictions)
        caught += bool(reading.contradictions or reading.not_understood)
        done += 1
        if done == count:
            return caught / count, contradicted / count
    raise AssertionError


@pytest.mark.parametrize("how", LEAST_CAUGHT)
def test_corrupted_stories_are_caught(how):
    caught, _ = detection(how)
    assert caught >= LEAST_CAUGHT[how]


# documents


def test_same_text_from_the_same_seed():
    text = "".join(training_text(0, 200))
    assert hashlib.sha256(text.encode()).hexdigest().startswith(FINGERPRINT)
    assert next(training_text(1, 1)) != next(training_text(0, 1))


def test_splits_share_neither_seeds_nor_stories():
    assert len({seed for seeds in SPLITS.values() for seed in (seeds[0], seeds[-1])}) == 6
    assert sum(map(len, SPLITS.values())) == len(range(1_002_000))
    train = {story.text for story in islice(stories(0), 3000)}
    for split in ("validation", "test"):
        held_out = {story.text for story in islice(stories(SPLITS[split][0]), 500)}
        assert not train & held_out


def test_documents_are_whole():
    texts = list(split_text("train", 1500))
    assert len(texts) == 1500
    for text in texts:
        assert text.endswith(END_OF_TEXT) and text.count(END_OF_TEXT) == 1
        assert text.count("<|im_start|>") == text.count(END_OF_TURN)
        assert text.isascii()
    assert texts[1000] == next(training_text(1, 1))


def test_some_users_are_in_a_hurry():
    assert hurried("Where is the ball?") == "where is the ball"
    said = [line for text in split_text("train", 500) for line in text.split("\n")[1:2]]
    share = sum(line == hurried(line.removesuffix(END_OF_TURN)) + END_OF_TURN for line in said)
    assert 0.05 < share / len(said) < HURRIED


# measuring


def test_true_stories_score_full_marks_and_others_do_not():
    scores = story_reader.baselines(SPLITS["test"][:2], 20)
    true, shuffled, others, trivial = map(shares, scores.values())
    assert 0.9 < true.pop("varied") < 1 and 0.95 < true.pop("as_often") <= 1
    assert set(true.values()) == {1}
    assert others["sound"] == 1 and trivial["as_often"] < 0.1 < 0.7 < others["as_often"] < 0.95
    assert shuffled["sound"] < 0.05 and shuffled["questions_right"] < 0.9
    assert trivial["varied"] < 0.05  # one story of five sentences, forty times
    assert trivial["sound"] == 0 and trivial["questions_right"] < 0.4
    assert trivial["told_apart"] == trivial["twins"] == 0
    assert shuffled["told_apart"] < 0.8 and shuffled["twins"] < 0.8


def test_a_short_story_is_no_answer_to_a_request_for_a_long_one():
    seeds = SPLITS["test"][:1]
    told = (story.text for story in stories(0))
    short = next(text for text in told if len(split_sentences(text)) < 2 * FEWEST)
    assert measure(lambda _: short, seeds, 2)["sound"] == 2
    found = measure(lambda _: short, seeds, 2, long=True)
    assert found["consistent"] == 2 and found["sound"] == 0


def test_measure_survives_any_answer():
    odd = ("They. They met it. It of Anna broke.", "It rained hard and smiled.")
    for text in ("", " ", '"', "?!", "\ufffd\ufffd", *odd):
        scores = measure(lambda _, text=text: text, [SPLITS["test"][0]], 2)
        assert scores["sound"] == 0 and scores["right"] == 0


def test_reader_survives_scrambled_words():
    rng = Random(0)
    told = list(islice(stories(0), 60))
    words = [word for story in told for word in story.text.split()]
    for story in told * 5:
        broken = story.text.split()
        for _ in range(rng.randrange(1, 8)):
            broken[rng.randrange(len(broken))] = rng.choice(words)
        mixed = split_sentences(" ".join(broken)) + split_sentences(rng.choice(told).text)
        rng.shuffle(mixed)
        reading = read_story(" ".join(mixed))
        for question, _ in story.questions:
            answer = reading.answer(question)
            assert answer is None or answer.endswith(".")


def test_shuffling_changes_the_story():
    story = next(stories(0)).text
    assert sorted(split_sentences(mix(story))) == sorted(split_sentences(story))


def test_nouns():
    assert [noun(t) for t in ("red toy boat", "teddy bear", "key")] == [
        "toy boat", "teddy bear", "key"
    ]  # fmt: skip


# tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("tokenizer")
    story_tokenizer.save(story_tokenizer.train_on_stories(2000), path)
    return path


def test_training_twice_gives_the_same_file(folder, tmp_path):
    story_tokenizer.save(story_tokenizer.train_on_stories(2000), tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_any_text_survives_the_tokenizer(folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [tokenizer.token_to_id(token) for token in story_tokenizer.SPECIAL_TOKENS] == [
        0,
        1,
        2,
    ]
    rng = Random(0)
    texts = ["", " ", "  a\n\n\tb ", "Grüße, 世界! 👩‍🚀 \u202e e\u0301 \x00", "3.14159"]
    for _ in range(300):
        points = [
            rng.choice((rng.randrange(32, 127), rng.randrange(0x110000))) for _ in range(20)
        ]
        texts.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
    texts += split_text("validation", 50)
    for text in texts:
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    told = [story.text for story in islice(stories(SPLITS["validation"][0]), 100)]
    words = sum(len(text.split()) for text in told)
    assert sum(len(tokenizer.encode(text).ids) for text in told) < 1.3 * words


def test_transformers_loads_the_tokenizer_and_its_chat_template(folder):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END_OF_TURN, END_OF_TEXT)
    said = "Tell me a story about Anna and a red ball."
    chat = [{"role": "user", "content": said}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == prompt(said)
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == 1 and tokenizer.decode(ids) == text
    document = next(d for d in training_text(0, 50) if d.startswith("<|im_start|>"))
    assert tokenizer.decode(tokenizer(document)["input_ids"]) == document


def test_a_vocabulary_too_small_is_refused():
    pytest.importorskip("tokenizers")
    with pytest.raises(ValueError, match="vocab_size is 100"):
        story_tokenizer.train(["a"], 100)
