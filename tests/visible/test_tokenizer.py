"""Visible checks of lab 09: what check("9.1") and its sisters run."""

import re
from itertools import pairwise

from labkit.checks.declared import Call, Outcome, check

VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = [chr(number) for number in (*VISIBLE, *range(256, 324))]  # of the 256 bytes, sorted
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|im_end|>s", "<｜é｜>")
MERGES = [
    tuple(pair.split()) for pair in (
        "h e", "Ġ t", "Ġt he", "i n", "a l", "al l", "Ġ b", "Ġb all", "e r", "in g", "r e",
        "Ã «", "o Ã«", "Z oÃ«", "ð Ł", "ðŁ Ļ", "t h", "th e", "n g", "l l", "e n", "Ġ Ġ", "a a",
        "aa aa", "e ng", "x y", "w x", "wx y", "wxy z", "w xy",
    )
]  # fmt: skip
TOKENS = [*ALPHABET, *dict.fromkeys(map("".join, MERGES)), *SPECIAL]  # "!" is token 0


def words(rng, count, letters="abcde", longest=6):
    """Words of random letters, some of them more than once."""
    sizes = rng.integers(1, longest + 1, max(count // 2, 1)).tolist()
    made = ["".join(letters[i] for i in rng.integers(0, len(letters), n)) for n in sizes]
    return " ".join(made[i] for i in rng.integers(0, len(made), count))


@check("9.1", cases=[
    {"tokens": ["l", "o", "w", "l", "o"], "pair": ("l", "o")},
    {"tokens": ["a", "a", "a", "a", "a"], "pair": ("a", "a")},
    {"tokens": ["lo", "w", "l", "ow", "low"], "pair": ("lo", "w")},
    {"tokens": ["b", "a", "b"], "pair": ("a", "b")},
    {"tokens": ["a"], "pair": ("a", "b")},
], points=0.5)  # fmt: skip
def test_merge_pair(rng, tokens, pair):
    """merge_pair of {pair} in {tokens}"""
    return Call("merge_pair", tokens=tokens, pair=pair)


def train_call(rng, texts, new, **options):
    return Call("train_bpe", texts=texts, vocab_size=256 + new, **options)


test_train = check("9.1", "train_bpe on {texts}, {new} tokens more than the bytes", cases=[
    {"texts": ["low low low lower lower newest newest newest"], "new": 4},
    {"texts": ["the cat", "the hat", "a cat on the mat"], "new": 6},
], points=2)(train_call)  # fmt: skip
test_train_ties = check("9.1", "train_bpe on {texts}: equally frequent pairs", cases=[
    {"texts": ["zy xw vu"], "new": 4}, {"texts": ["abab cdcd"], "new": 4},
])(train_call)  # fmt: skip
test_train_pieces = check(
    "9.1",
    "train_bpe on {texts}: no pair across two pieces",
    cases=[
        {"texts": ["b1 b1 b1 b1 cat", "n't n't"], "new": 3},
        {"texts": ["ab", "ba", "ba"], "new": 2},
    ],
)(train_call)
test_train_bytes = check("9.1", "train_bpe on {texts}: bytes, not characters", texts=[
    ["Zoë Zoë naïve", "好好 你好"],
], new=5)(train_call)  # fmt: skip
test_train_overlap = check("9.1", "train_bpe on {texts}: pairs that overlap", texts=[
    ["aaa aaa bb bb bb cb"],
], new=4)(train_call)  # fmt: skip
test_train_end = check(
    "9.1", "train_bpe, {new} more than the bytes: no pair is left", new=[40]
)(lambda rng, new: train_call(rng, ["abc ab"], new))
test_train_none = check(
    "9.1", "train_bpe, vocab_size {vocab_size}", points=0.5, vocab_size=[256, 100]
)(lambda rng, vocab_size: train_call(rng, ["aa aa"], vocab_size - 256))


test_train_pattern = check(
    "9.1", "train_bpe with the pattern {pattern}",
    pattern=[r"\p{L}+|\p{N}|\s", r"[^\s]+|\s+"], texts=[["ab ab, ab, 12 12"]], new=3,
    points=0.5,
)(train_call)  # fmt: skip


@check("9.1", count=[40])
def test_train_words(rng, count):
    """train_bpe on {count} words"""
    return train_call(rng, [words(rng, count), words(rng, count)], 12)


def tokenizer_call(rng, special_tokens=SPECIAL, flip=False, merges=MERGES, **options):
    """A tokenizer of the table above; with flip the ids run backwards."""
    names = TOKENS[::-1] if flip else TOKENS
    vocab = {token: number + 5 * flip for number, token in enumerate(names)}
    init = {"vocab": vocab, "merges": merges, "special_tokens": special_tokens, **options}
    return Call("BPETokenizer", init=init)


def bpe_call(rng, piece, **options):
    return tokenizer_call(rng, **options).then("bpe", piece=piece)


def encode_call(rng, text, parse_special=None, more=0, **options):
    """more   of words behind the text"""
    inputs = {} if parse_special is None else {"parse_special": parse_special}
    text += " " + words(rng, more, "theringalbo") if more else ""
    return tokenizer_call(rng, **options).then("encode", text=text, **inputs)


def decode_call(rng, ids, skip_special_tokens=None, more=0, **options):
    ids = [TOKENS.index(part) if isinstance(part, str) else part for part in ids]
    ids += rng.integers(0, len(TOKENS), more).tolist()
    if options.get("flip"):
        ids = [len(TOKENS) + 4 - number for number in ids]
    inputs = {} if skip_special_tokens is None else {"skip_special_tokens": skip_special_tokens}
    return tokenizer_call(rng, **options).then("decode", ids=ids, **inputs)


def as_tokens(outcomes):
    """Of ids, the tokens that they are, which are easier to read."""
    ids = outcomes[0].value
    numbers = isinstance(ids, list) and all(
        type(n) is int and 0 <= n < len(TOKENS) for n in ids
    )
    return [Outcome([[TOKENS[n] for n in ids]])] if numbers else outcomes


check_ids = lambda title, **values: check("9.2", title, view=as_tokens, **values)  # noqa: E731

test_bpe = check("9.2", "bpe of {piece!r}", piece=[
    " the", "there", "singing", "allall", "b", "length", "rerun", "wxyz",
])(bpe_call)  # fmt: skip
test_bpe_bytes = check("9.2", "bpe of {piece!r}", piece=["Zoë", "🙂", "aaaaaaa"], points=0.5)(
    bpe_call
)
test_encode = check_ids("encode {text!r}", text=["the ball, there!", "call 2026", ""])(
    encode_call
)
test_encode_bytes = check_ids("encode {text!r}", text=["Zoë 你🙂"])(encode_call)
test_encode_ids = check("9.2", "encode {text!r}: ids in another order", flip=True, text=[
    "there, singing",
])(encode_call)  # fmt: skip
test_encode_special = check_ids("encode {text!r}", points=2, text=[
    "<|im_start|>all<|im_end|>\nthe", "<|im_end|>\n<|im_end|><|im_end|> ball<｜é｜>",
])(encode_call)  # fmt: skip
test_encode_longest = check_ids("encode {text!r}: the longer name", points=0.5, text=[
    "all<|im_end|>s",
])(encode_call)  # fmt: skip
test_encode_letters = check_ids(
    "encode {text!r} with parse_special=False", text=["the<|im_end|>", "<|im_end|>"],
    parse_special=False,
)(encode_call)  # fmt: skip
test_encode_no_special = check_ids("encode {text!r} without special tokens", text=["the|ball"],
                                   special_tokens=(), points=0.5)(encode_call)  # fmt: skip
test_encode_form = check_ids("encode e and an accent, normal_form NFC", points=0.5,
                             text="Zoe\u0308", normal_form="NFC")(encode_call)  # fmt: skip
test_encode_pattern = check_ids(
    "encode {text!r} with the pattern {pattern}", points=0.5, pattern=r"\p{L}|\s|[^\s\p{L}]+",
    text=["all, the"],
)(encode_call)  # fmt: skip
test_decode = check("9.2", "decode tokens of {ids}", ids=[["Ġthe", "Ġball", "!"], []])(
    decode_call
)
test_decode_halves = check("9.2", "decode {ids}: a character in several tokens", ids=[
    ["ðŁĻ", "Ĥ", "Ã«"], ["Ã", "«", "ä", "½", "ł"],
])(decode_call)  # fmt: skip
test_decode_broken = check("9.2", "decode {ids}: bytes that are no UTF-8", ids=[
    ["the", "ðŁ", "all"], ["Ł", "Ã"],
])(decode_call)  # fmt: skip
test_decode_special = check(
    "9.2", "decode special tokens, skip_special_tokens {skip_special_tokens}",
    ids=("<|im_start|>", "all", "<|im_end|>", "<｜é｜>"), skip_special_tokens=[None, False],
)(decode_call)  # fmt: skip
test_decode_unknown = check("9.2", "decode an id without a token", points=0.5,
                            ids=("all", 900, "the"))(decode_call)  # fmt: skip


def chat(*turns):
    """Messages, of texts with the first letter of their role before them: "u:hello"."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn[2:]} for turn in turns]


def chat_call(rng, turns, **options):
    """Each ~ in the turns becomes a word."""
    turns = [re.sub("~", lambda _: words(rng, 1), turn) for turn in turns]
    return Call("render_chat", messages=chat(*turns), **options)


THOUGHT = "a:<think>\nHe is hurt.\n</think>\n\nHello."
test_chat = check("9.3", "a question", points=1.5, turns=[
    ("u:Hi",), ("s:Be brief.", "u:Who are you?"), ("u:Hi", "a:Yes?", "u:What is </think>?"),
])(chat_call)  # fmt: skip
test_chat_turns = check("9.3", "several turns", turns=[("u:Hi", "a:Hello.", "u:A story!\n")])(
    chat_call
)
test_chat_off = check("9.3", "thinking off", enable_thinking=False, points=1.5, turns=[
    ("u:Hi",), ("u:Hi", "a:Hello.", "u:Go on."),
])(chat_call)  # fmt: skip
test_chat_closed = check(
    "9.3", "no generation prompt, enable_thinking {enable_thinking}",
    enable_thinking=[True, False], turns=("u:Hi", "a:Hello.", "u:Bye."),
    add_generation_prompt=False,
)(chat_call)  # fmt: skip
test_chat_past = check("9.3", "a thought before the last user message", points=1.5, turns=[
    ("u:Hi", THOUGHT, "u:Bye."), ("u:Hi", THOUGHT, "u:Who?", "a:I.", "u:Bye."),
])(chat_call)  # fmt: skip
test_chat_last = check(
    "9.3",
    "a conversation that ends with an answer",
    add_generation_prompt=False,
    turns=[
        ("u:Hi", THOUGHT),
        ("u:Hi", "a:Hello."),
        ("u:Hi", "a:<think>\n\n</think>\n\nHello."),
    ],
)(chat_call)
test_chat_two = check(
    "9.3", "two answers after the last question", add_generation_prompt=False, points=0.5,
    turns=[("u:Hi", THOUGHT, "a:Go on."), ("u:Hi", "a:Well.", THOUGHT)],
)(chat_call)  # fmt: skip
test_chat_no_user = check(
    "9.3", "no user message", points=0.5,
    turns=[("s:Be brief.", THOUGHT), ("s:x", "a:Well.", THOUGHT)],
)(chat_call)  # fmt: skip
test_chat_breaks = check(
    "9.3", "line breaks around a thought", points=0.5, add_generation_prompt=False, turns=[
        ("u:Hi", "a:<think>\n\n\nWell.\n\n</think>\nHello.\n"), ("u:Hi", "a:\nHello."),
        ("u:Hi", "a:\n\nWell, \n", "u:Bye\n"), ("u:Hi", "a:  Hello."),
        ("u:Hi", "a:<think>\n  Well. \n</think>\n\n  Hello."),
    ],
)(chat_call)  # fmt: skip


@check("9.4", bytes=["Ã«ðŁĻĤ"], count=3)
def test_web_stream(rng, bytes, count):
    """the tokens of plain words, and with the bytes {bytes} behind, cut anywhere"""
    plain = words(rng, 2 * count).replace(" ", "Ġ")
    for letters, ends in ((plain, ()), (plain + bytes, (len(plain) + 1,))):
        ends = {*ends, *rng.integers(1, len(letters), count).tolist(), len(letters)}
        starts = [0, *sorted(ends)]
        tokens = [letters[start:end] for start, end in pairwise(starts)]
        yield Call("web_stream", tokens=tokens)
