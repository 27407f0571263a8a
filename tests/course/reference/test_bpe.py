"""Lab 09's tokenizer compared with `tokenizers`, its layout of a chat with Qwen3's template."""

import json
import random
from itertools import product

import pytest
import small
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from labkit.model.hub import SHIPPED
from solutions.byte_level import PATTERN, pre_tokenize, vocabulary
from solutions.tokenizer import BPETokenizer, render_chat, train_bpe

LETTERS = [
    *"aab'sStTr\u00e9 \n\r\t.,!\u017f\u00b2\u00bd\u2167\u0663\u4f60\u597d\U0001f642",
    *"\u0301\u00a0\u2003\x1c\x85_-]^\\",
]
PARTS = [*LETTERS, "<|im_end|>", "<|im_start|>", "<|im_", " the", " ball", "'re", "\ufffd"]


def texts(parts, count, longest=14):
    rng = random.Random(0)
    return ["".join(rng.choices(parts, k=rng.randrange(longest))) for _ in range(count)]


def library(pattern=PATTERN):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    return made


def test_texts_are_cut_where_the_library_cuts():
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    for text in texts(PARTS, 2000):
        assert pre_tokenize(text) == [piece for piece, _ in split.pre_tokenize_str(text)], text


@pytest.mark.parametrize("parts", ["aaabbc \u00e9\U0001f642", "abcde ", "xy1 ,.\n"])
def test_the_same_merges_are_learned(parts):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    for number in range(30):
        corpus = texts(parts, 3 + number, 40)
        made = library()
        made.train_from_iterator(corpus, trainers.BpeTrainer(
            vocab_size=250 + 3 * number, initial_alphabet=alphabet, show_progress=False
        ))  # fmt: skip
        theirs = json.loads(made.to_str())["model"]
        merges = train_bpe(corpus, 250 + 3 * number)
        assert merges == [tuple(pair) for pair in theirs["merges"]], corpus
        assert vocabulary(merges) == theirs["vocab"]


@pytest.mark.parametrize("name", [*SHIPPED, "small"])
def test_ids_and_texts_are_the_library_s(name, tokenizer_folder):
    folder = SHIPPED.get(name, tokenizer_folder)
    ours, theirs = (
        BPETokenizer.from_folder(folder),
        Tokenizer.from_file(f"{folder}/tokenizer.json"),
    )
    rng = random.Random(0)
    for text in (*small.TEXTS, *texts(PARTS, 500)):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, text
        drawn = [rng.randrange(theirs.get_vocab_size() + 3) for _ in range(8)]
        for numbers, skip in product((ids, drawn), (True, False)):
            if skip and name == "small":
                continue  # some of its added tokens are not special
            assert ours.decode(numbers, skip) == theirs.decode(
                numbers, skip_special_tokens=skip
            )


def test_a_chat_is_laid_out_as_by_qwen3_s_template():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(small.TEMPLATE)
    contents = [
        "Hi",
        "",
        "\n\nHi \n",
        "<think>\nHm.\n\n</think>\n\nHi.",
        "<think>x</think>\ny\n",
    ]
    rng = random.Random(0)
    for _ in range(500):
        roles = ["system"] * rng.randrange(2) + rng.choices(
            ["user", "assistant"], k=rng.randrange(1, 6)
        )
        chat = [{"role": r, "content": rng.choice(contents)} for r in roles]
        for prompt, thinking in product((True, False), repeat=2):
            how = {"add_generation_prompt": prompt, "enable_thinking": thinking}
            assert render_chat(chat, **how) == template.render(messages=chat, **how), (
                chat,
                how,
            )
