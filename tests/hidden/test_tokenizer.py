"""Hidden checks of lab 09: random words, other letters, other tables, longer chats."""

from visible import test_tokenizer as visible

from labkit.checks.declared import Call, check


@check("9.1", points=2, size=[2, 9, 30])
def test_merge(rng, size):
    """merge_pair in {size} random tokens, by position"""
    tokens = ["ab"[i] for i in rng.integers(0, 2, size)]
    pair = tuple("ab"[i] for i in rng.integers(0, 2, 2))
    return Call("merge_pair", by_position=True).then("", tokens=tokens, pair=pair)


test_merge_values = check("9.1", cases=[
    {"tokens": ["ab", "c", "abc", "ab", "ab", "c", "ab"], "pair": ("ab", "c")},
    {"tokens": ["b", "a", "a", "a", "b", "a", "a"], "pair": ("a", "a")},
    {"tokens": [], "pair": ("a", "b")},
])(visible.test_merge_pair)  # fmt: skip


@check(
    "9.1",
    points=4,
    cases=[
        {"letters": "abcdef", "count": 80, "new": 25},
        {"letters": "ab", "count": 30, "new": 12},
        {"letters": "aëß你🙂", "count": 30, "new": 20},
        {"letters": "xyz1 ,.\n", "count": 40, "new": 15},
    ],
)
def test_train(rng, letters, count, new):
    """train_bpe on words of {letters!r}"""
    texts = [visible.words(rng, count, letters) for _ in range(3)]
    return visible.train_call(rng, texts, new)


test_train_one = check("9.1", points=0.5, new=[1])(
    lambda rng, new: visible.train_call(rng, ["to be or not to be"], new)
)
test_train_ties = check("9.1", points=1.5, cases=[
    {"texts": ["qp on ml kj"], "new": 4}, {"texts": ["caba bcac"], "new": 5},
    {"texts": ["éè éê"], "new": 3},
])(visible.test_train_ties)  # fmt: skip
test_train_pieces = check("9.1", points=1.5, cases=[
    {"texts": ["x2 x2 x2 y3", "we're we're"], "new": 4},
    {"texts": ["xy", "yx", "yx"], "new": 3},
])(visible.test_train_pieces)  # fmt: skip
test_train_overlap = check("9.1", texts=[["eeeee ddd fd fd"], ["oooo oo oo po po po"]],
    new=5)(visible.test_train_overlap)  # fmt: skip
test_train_end = check("9.1", new=[90])(visible.test_train_end)
test_train_none = check("9.1", points=0.5, vocab_size=[256, 255, 0])(visible.test_train_none)
test_train_pattern = check("9.1", points=0.5, pattern=[r"\p{L}|\s",
    r"[^\s]+|\s"])(visible.test_train_pattern)  # fmt: skip
test_train_empty = check("9.1", points=0.5, new=[3], texts=[[], [""],
    ["a"]])(visible.train_call)  # fmt: skip

ODD = ("  two  spaces", "the\r\n\tball \n", "x = 3.14;", "İſ ²½ ٣ Ⅷ", "don't DON'T 're")
test_bpe_bytes = check("9.2", points=0.5, piece=["oë", "ë🙂", "aaaaaa", "  ",
    ""])(visible.test_bpe_bytes)  # fmt: skip


@check("9.2", points=3, size=[4, 8, 20])
def test_bpe_drawn(rng, size, letters="abcd"):
    """bpe of pieces of {size} letters, with merges drawn at random"""
    tokens, merges = [*letters], []
    while len(merges) < 16:
        pair = tuple(tokens[i] for i in rng.integers(0, len(tokens), 2))
        if pair not in merges and len("".join(pair)) < 6:
            merges.append(pair)
            tokens += [token for token in ["".join(pair)] if token not in tokens]
    call = visible.tokenizer_call(rng, merges=merges)
    for _ in range(6):
        call.then("bpe", piece="".join(letters[i] for i in rng.integers(0, 4, size)))
    return call


@check("9.2", points=2)
def test_bpe_pieces(rng, parts=("the", "in", "g", "er", "al", "l", "re", "ng", " b", "wxyz")):
    """bpe of pieces that many merges fit"""
    call = visible.tokenizer_call(rng)
    for _ in range(8):
        call.then("bpe", piece="".join(parts[i] for i in rng.integers(0, len(parts), 4)))
    return call


@check("9.2", points=2, flip=[False, True])
def test_encode_words(rng, flip):
    """encode random words"""
    text = visible.words(rng, 30, "theringalboZë ")
    return visible.encode_call(rng, text, flip=flip)


test_encode_odd = check("9.2", "encode {text!r}, and words", points=0.5, more=3,
                        text=[*ODD, "Zoë ðŁ 🙂🙃"])(visible.encode_call)  # fmt: skip
test_encode_special = check("9.2", "encode {text!r}, and words", points=1.5, more=3, text=[
    "<|im_start|>user\nball<|im_end|>\n", "the <|im_start|><|im_end|>", "in<|im_end|>g<｜é｜>"
], flip=[False, True])(visible.encode_call)  # fmt: skip
test_encode_longest = check(
    "9.2", "encode {text!r}, and words: the longer name", points=0.5, flip=True, more=3,
    text=["<|im_end|>s<|im_end|> s"],
)(visible.encode_call)  # fmt: skip
test_encode_letters = check(
    "9.2", points=1.5, text=["<|im_end|>s the<|im_start|>", "ball"], flip=True, more=3
)(visible.test_encode_letters)
test_encode_name = check("9.2", text=["<|im_end|>"], flip=True)(visible.test_encode_letters)
test_encode_no_special = check(
    "9.2", points=0.5, text=["<|im_end|>|", "all()"], special_tokens=(), more=3
)(visible.encode_call)
test_encode_form = check(
    "9.2", points=0.5, text=["e\u0301 oe\u0308"], normal_form=["NFC", None], more=3
)(visible.test_encode_form)
test_encode_pattern = check("9.2", points=0.5, text=["the ball 12"], flip=True,
    more=3)(visible.test_encode_pattern)  # fmt: skip


@check("9.2", points=2, skip=[None, False], flip=[False, True])
def test_decode_random(rng, skip, flip):
    """decode random ids"""
    ids = [0, *rng.integers(0, len(visible.TOKENS), 30).tolist(), "<｜é｜>", "<|im_end|>"]
    return visible.decode_call(rng, ids, skip, flip=flip)


test_decode_halves = check("9.2", ids=[["ðŁ", "Ļ", "ĥ"], ["æ", "Ī", "ĳ", "Z"]],
    more=5)(visible.test_decode_halves)  # fmt: skip
test_decode_across = check(
    "9.2", "decode half a character before a special token", points=0.5, more=5,
    ids=[["ðŁ", "<|im_end|>", "Ļ", "Ĥ"]], skip_special_tokens=[None, False],
)(visible.decode_call)  # fmt: skip
test_decode_broken = check("9.2", ids=[["Ĥ", "a", "ðŁĻ"], ["í", "ł", "Ģ"]], flip=True,
    more=5)(visible.test_decode_broken)  # fmt: skip
test_decode_unknown = check(
    "9.2", points=0.5, ids=(900, 901, "Ġball", 4444), flip=True, more=5
)(visible.test_decode_unknown)

A, B = "a:<think>\nOne ~.\nTwo.\n</think>\n\nThree ~.", "a:<think>\nNo.\n</think>\n\nYes, ~.\n"
test_chat = check("9.3", points=1.5, turns=[
    ("u:Tell me a ~.\n\n",), ("s:", "u: ~ "), ("u:<think>\n~\n</think>\n\n2",),
    ("s:Be ~.\nBe brief.", "u:Hi", "s:Be loud.", "u:?"),
])(visible.test_chat)  # fmt: skip
test_chat_turns = check("9.3", "several turns", turns=[
    ("u:~", "a:b", "u:c", "a:d", "u:e"), ("s:x", "u:a", "a: ~\n", "u:~"), ("u:~", "u:b"),
])(visible.chat_call)  # fmt: skip
test_chat_off = check("9.3", points=1.5, enable_thinking=False, turns=[
    ("s:x", "u:~"), ("u:Hi", A, "u:Go on."),
])(visible.test_chat_off)  # fmt: skip
test_chat_closed = check("9.3", turns=("s:x", "u:~", "a:b", "u:c"))(visible.test_chat_closed)
test_chat_past = check("9.3", points=2, turns=[
    ("u:a", A, "u:b", B, "u:c"), ("u:a", A, B, "u:b"), ("u:a", "a:1 < 2 <think> ~", "u:b"),
])(visible.test_chat_past)  # fmt: skip
test_chat_last = check("9.3", turns=[
    ("u:a", B), ("u:a", A, "u:b", B), ("s:x", "u:~", "a:b"), ("u:a", A, "u:b", "a:c"),
])(visible.test_chat_last)  # fmt: skip
test_chat_last_open = check("9.3", "an answer, and a generation prompt", points=0.5, turns=[
    ("u:a", B), ("u:a", "a:~"),
])(visible.chat_call)  # fmt: skip
test_chat_two = check("9.3", points=0.5, turns=[
    ("u:a", A, B, "a:c"), ("u:a", "a:~", "a:c"), ("u:a", A, "s:x", B),
])(visible.test_chat_two)  # fmt: skip
test_chat_no_user = check("9.3", points=0.5, turns=[(A,), ("s:x", "a:~"), ("s:x", "a:~",
    A)])(visible.test_chat_no_user)  # fmt: skip
test_chat_breaks = check("9.3", points=0.5, turns=[
    ("u:a", "a:<think>~</think>y"), ("u:a", "a:\n\n~\n\n"), ("u:a", "a:\n\n~", "u:b"),
    ("u:a", "a:<think>\n~\n\n</think>\n\n\n\ny", "u:b"), ("u:a", "a:\t~"),
    ("u:a", "a:<think>\n\t~ \n</think>\n\n y"),
])(visible.test_chat_breaks)  # fmt: skip
test_web_stream = check("9.4", count=[2, 5], bytes=["ä½łå¥½", "Ã¯"])(visible.test_web_stream)
