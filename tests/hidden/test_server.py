"""Hidden checks of lab 15: odd sizes, other dtypes, fresh numbers, longer lines."""

import torch
from visible import test_server as visible

from labkit.checks.declared import STRIDED, check, strided

BF16, F16 = torch.bfloat16, torch.float16

test_one = check("15.1", shape=[(1, 1, 1, 3)], lengths=[(1,), (11,)],
                 block_size=[5, 1])(visible.test_pages_one)  # fmt: skip
test_prompt = check("15.1", shape=[(4, 2, 9, 5)], lengths=(9,),
                    block_size=[4, 1])(visible.test_pages_prompt)  # fmt: skip
test_chunk = check("15.1", points=2, shape=[(3, 3, 4, 5)], lengths=[(13,), (4,)],
                   block_size=[5])(visible.test_pages_chunk)  # fmt: skip
test_texts = check("15.1", points=3, shape=[(4, 2, 1, 5)],
                   lengths=[(13, 1, 6), (2, 2), (5, 17)],
                   block_size=[2, 4])(visible.test_pages_texts)  # fmt: skip
test_both = check("15.1", points=2, shape=[(4, 2, 2, 3)], lengths=[(2, 11), (7, 3, 12, 2)],
                  block_size=[3])(visible.test_pages_both)  # fmt: skip
test_heads = check("15.1", shape=[(8, 2, 3, 4), (6, 3, 1, 5)])(visible.test_pages_heads)
test_shared = check("15.1", lengths=[(9, 4, 6)])(visible.test_pages_shared)
test_wide = check("15.1", spare=5)(visible.test_pages_wide)
test_nan = check("15.1", points=1.5, lengths=[(1, 7, 4)], block_size=[4])(
    visible.test_pages_nan
)
test_scale = check("15.1", scale=[0.2, 0.0], features=9)(visible.test_pages_scale)
test_large = check("15.1", tolerance=1e-3, size=[900.0], lengths=(9, 5))(
    visible.test_pages_large
)
test_negative = check("15.1", size=[900.0], tolerance=1e-3)(visible.test_pages_negative)
test_half = check("15.1", dtype=[BF16, F16], lengths=(41, 7))(visible.test_pages_half)
test_sums = check("15.1", total=110)(visible.test_pages_sums)
test_memory = check("15.1", points=3, cases=[
    {"shape": (4, 2, 1, 3), "lengths": (400, 3), "most": 300},
    {"shape": (2, 2, 30, 2), "lengths": (110,), "most": 900},
    {"shape": (2, 1, 1, 3), "lengths": (250, 4), "most": 200, "dtype": BF16},
])(visible.test_pages_memory)  # fmt: skip
test_positions = check("15.1", scale=0.9)(visible.test_pages_positions)
test_strided = check("15.1", STRIDED, lengths=(5, 3), shape=(4, 2, 2, 3))(
    strided(visible.pages_call)
)

test_cache_one = check("15.2", block_size=[3, 5])(visible.test_cache_one)
test_cache_reserve = check("15.2", block_size=3)(visible.test_cache_reserve)
test_cache_second = check("15.2", points=2, block_size=[1, 3])(visible.test_cache_second)
test_cache_left = check("15.2", points=2, num_blocks=[8, 9])(visible.test_cache_left)
test_cache_written = check("15.2", block_size=[3, 1], num_blocks=20)(visible.test_cache_written)
test_cache_last = check("15.2", points=2, block_size=[3, 1],
                        num_blocks=20)(visible.test_cache_last)  # fmt: skip
test_cache_parent = check("15.2", points=3, block_size=[1, 2],
                          num_blocks=20)(visible.test_cache_parent)  # fmt: skip
test_cache_answer = check("15.2", points=2, block_size=[1, 3])(visible.test_cache_answer)
test_cache_twice = check("15.2", points=2, num_blocks=[11])(visible.test_cache_twice)
test_cache_oldest = check("15.2", points=3, num_blocks=[6])(visible.test_cache_oldest)
test_cache_end = check("15.2", points=2, num_blocks=[4, 5])(visible.test_cache_end)
test_cache_unknown = check("15.2", num_blocks=[4, 6])(visible.test_cache_unknown)
test_cache_full = check("15.2", points=1.5, num_blocks=[4, 5])(visible.test_cache_full)
test_cache_counted = check("15.2", points=1.5, num_blocks=[4])(visible.test_cache_counted)
test_cache_collision = check("15.2", points=2, num_blocks=[22])(visible.test_cache_collision)


@check("15.2", points=6, num_blocks=[12, 17], block_size=[2, 3], view=visible.cache_books)
def test_cache_drawn(rng, num_blocks, block_size, rounds=40):
    """a day of requests, blocks of {block_size}"""
    steps, alive, known = [], {}, ["abc", "abcdefgh", "xbcdefgh", "abcdxy"]
    for number in range(rounds):
        if alive and int(rng.integers(0, 2, 1)):
            sequence = list(alive)[int(rng.integers(0, len(alive), 1))]
            length, kind = alive[sequence], int(rng.integers(0, 3, 1))
            if kind:  # write what it has, then leave or stay
                steps.append(("commit", sequence, length))
            if kind != 1:
                steps.append(("free", sequence))
                del alive[sequence]
        else:
            text = known[int(rng.integers(0, len(known), 1))] + chr(97 + number % 26)
            if sum(-(-n // block_size) for n in (*alive.values(), len(text))) <= num_blocks:
                steps.append(("begin", number, text))
                alive[number] = len(text)
    return visible.cached(rng, steps, num_blocks, block_size)


test_cache_partial = check("15.2", points=1.5, block_size=[5, 3])(visible.test_cache_partial)
test_cache_first = check("15.2", num_blocks=[9, 10])(visible.test_cache_first)
test_cache_refused = check("15.2", num_blocks=[4, 5])(visible.test_cache_refused)
test_cache_short = check("15.2", num_blocks=[5, 6])(visible.test_cache_short)

test_plan_one = check("15.3", requests=[((9, 2),), ((1, 1),)])(visible.test_plan_one)
test_plan_together = check("15.3", requests=[((4, 2), (1, 5), (2, 1))])(
    visible.test_plan_together
)
test_plan_chunks = check("15.3", points=2, requests=[((33, 2),)],
                         budget=[7, 16])(visible.test_plan_chunks)  # fmt: skip
test_plan_behind = check("15.3", points=2, late=[((11, 2), (9, 3))],
                         passes=[8])(visible.test_plan_behind)  # fmt: skip
test_plan_before = check("15.3", points=2, requests=[((40, 2), (3, 4))],
                         budget=[9])(visible.test_plan_before)  # fmt: skip
test_plan_prompts = check("15.3", points=2, budget=[6], requests=[((9, 2), (8, 3), (7, 2))],
                          passes=10)(visible.test_plan_prompts)  # fmt: skip
test_plan_tight = check("15.3", budget=4, most=4, requests=[((4, 3), (3, 5), (2, 2), (5, 4))],
                        passes=14)(visible.test_plan_tight)  # fmt: skip
test_plan_most = check("15.3", points=2, most=[1, 3], requests=[
    ((3, 2), (1, 4), (5, 3), (2, 2), (2, 5))])(visible.test_plan_most)  # fmt: skip
test_plan_order = check("15.3", points=2, blocks=[7], requests=[
    ((5, 4), (8, 3), (1, 1), (2, 3))], passes=12)(visible.test_plan_order)  # fmt: skip
test_plan_known = check("15.3", points=1.5, known=[((10, 4), (11, 10))],
                        requests=((7, 3), (15, 4)))(visible.test_plan_known)  # fmt: skip
test_plan_room = check("15.3", points=1.5, known=[((10, 4), (11, 10))],
                       requests=((7, 3), (15, 4)))(visible.test_plan_room)  # fmt: skip
test_plan_preempted = check("15.3", points=3, passes=20, requests=[
    ((3, 9), (5, 6), (3, 7)), ((2, 8), (3, 9), (2, 10), (1, 3))], blocks=[7, 9],
)(visible.test_plan_preempted)  # fmt: skip
test_plan_itself = check("15.3", requests=[((6, 7), (3, 8))],
                         blocks=[7])(visible.test_plan_itself)  # fmt: skip
test_plan_nobody = check("15.3", points=1.5, requests=[((2, 10), (8, 5), (2, 3))],
                         blocks=[7])(visible.test_plan_nobody)  # fmt: skip
test_plan_drafts = check("15.3", points=1.5, drafts=[2, 4], budget=[7, 16])(
    visible.test_plan_drafts)  # fmt: skip
test_plan_dropped = check("15.3", requests=[((3, 9), (4, 8))], blocks=[7],
                          drafts=3)(visible.test_plan_dropped)  # fmt: skip


@check("15.3", points=5, blocks=[9, 14], budget=[5, 9], view=visible.passes_of)
def test_plan_drawn(rng, blocks, budget):
    """requests at random, {blocks} blocks, budget {budget}"""
    sizes = [(int(a), int(b)) for a, b in rng.integers(1, 9, 7, 2)]
    return visible.planned(rng, sizes[:4], 30, blocks, budget=budget, late=sizes[4:])


test_draft = check("15.4", points=2, cases=[
    {"words": "abcdeabcfabc", "count": 4}, {"words": "aabaabaa", "count": 5},
    {"words": "abcdefg", "count": 3}, {"words": "cabcaac", "count": 1},
    {"words": "xaybxayzxa", "count": 6}, {"words": "aa", "count": 3},
    {"words": "aaaa", "count": 2}, {"words": "xababab", "count": 3},
])(visible.test_draft)  # fmt: skip
test_draft_longest = check("15.4", longest=[1, 3, 5])(visible.test_draft_longest)


@check("15.4", points=4, count=[1, 4], longest=[2, 3])
def test_draft_drawn(rng, count, longest, size=24):
    """a text of three words at random, {count} tokens wanted, {longest} looked for"""
    words = "".join("abc"[n] for n in rng.integers(0, 3, size).tolist())
    return visible.test_draft.function(rng, words, count, longest)


test_accept = check("15.4", points=2, passed=[0, 1, 2, 3, 5], count=5)(visible.test_accept)
test_rewind = check("15.4", points=1.5, cases=[
    {"length": 9}, {"length": 6}, {"length": 3}, {"length": 1}, {"length": 0}, {"length": 30},
], block_size=3)(visible.test_rewind)  # fmt: skip
test_rewind_shared = check("15.4", points=2, length=[1, 4])(visible.test_rewind_shared)
test_rewind_known = check("15.4", named=[(2,), (0, 1, 2)])(visible.test_rewind_known)

test_stop_none = check("15.5", pieces=("", "Hello", ", you"))(visible.test_stop_none)
test_stop_inside = check("15.5", stops=("<|im_end|>",), pieces=(
    "a <|im_", "x", "<|im_end|>y", "z"))(visible.test_stop_inside)  # fmt: skip
test_stop_across = check("15.5", stops=("abcabd",), pieces=("xab", "cab", "cab", "d", "e"))(
    visible.test_stop_across)  # fmt: skip
test_stop_first = check("15.5", points=2, stops=("q.", "..p"), pieces=(
    "a", ".", ".", "pq.", "r"))(visible.test_stop_first)  # fmt: skip
test_stop_rest = check("15.5", stops=("\n\n", "--"), pieces=("a-", "-", "b"))(
    visible.test_stop_rest)  # fmt: skip
test_stop_two = check("15.5", stops=("b", "a b", "aa"), pieces=("caab", "b"))(
    visible.test_stop_two
)
test_stop_itself = check("15.5", points=1.5, stops=("###", "--"), pieces=("a--", "#", "##b"))(
    visible.test_stop_itself)  # fmt: skip
test_stop_longer = check("15.5", stops=("xxxy", "xy", "y"), pieces=("axxx", "b", "xx", "y"))(
    visible.test_stop_longer)  # fmt: skip
test_stop_again = check("15.5", stops=("aaab",), pieces=("aa", "aaa", "c", "aaab"))(
    visible.test_stop_again)  # fmt: skip
test_stop_drawn = check("15.5", points=9, size=[1, 2, 3, 4], pieces=[9, 14])(
    visible.test_stop_drawn)  # fmt: skip

test_mask_begin = check("15.6", texts=("x", "xy", "", "aa", "a", "yx", "abc", "c"))(
    visible.test_mask_begin)  # fmt: skip
test_mask_follow = check("15.6", points=1.5, steps=[("x", 0, "y", 0), ("ab", 0, "c", 0)])(
    visible.test_mask_follow)  # fmt: skip
test_mask_string = check("15.6", points=2, steps=[
    ('"abc', 0, "b\xc3", 0, '"', 0), ('""', 0), ('"', 0, "a", "a", 0, 'ab"', 0)])(
    visible.test_mask_string)  # fmt: skip
test_mask_end = check("15.6", points=1.5, steps=[("x", 0, "y", 0), ("abc", 0, "<end>", 0)])(
    visible.test_mask_end)  # fmt: skip
test_mask_open = check("15.6", points=1.5, steps=[("-2", 0, "10", 0), ("-", 0, "1", 0)])(
    visible.test_mask_open)  # fmt: skip
test_mask_spelled = check("15.6", steps=(0, '"', "a", 0, '"', 0), eos=("a\xc3", "b"), texts=(
    "b", '"', "a", "a\xc3", 'b"'))(visible.test_mask_spelled)  # fmt: skip
test_mask_refused = check("15.6", points=1.5, steps=[
    ("?c", "x", "?x", "?", 0), ("ab", "?bc", "?<end>", "c", "?c", 0)])(
    visible.test_mask_refused)  # fmt: skip
test_mask_logits = check("15.6", points=2, extra=[0, 7], steps=("x", 1, "y", 1))(
    visible.test_mask_logits)  # fmt: skip
test_mask_low = check("15.6", shift=[-5e4, 3e4])(visible.test_mask_low)
test_mask_half = check("15.6", dtype=[BF16, F16])(visible.test_mask_half)
test_mask_nothing = check("15.6", steps=("x", "?a", "y", -1))(visible.test_mask_nothing)


@check("15.6", points=3, states=[3, 6], size=[2.0])
def test_mask_drawn(rng, states, size):
    """a machine of {states} states and tokens at random"""
    letters, arrows, texts = "abcd", [], ["", "<end>"]
    for state in range(states):
        for letter, target in zip(letters, rng.integers(0, states, 4).tolist(), strict=True):
            arrows += [(state, letter, target)] * bool(rng.integers(0, 3))
    for at in range(18):
        texts.append("".join(letters[n] for n in rng.integers(0, 4, 1 + at // 6).tolist()))
    texts = tuple(dict.fromkeys(texts))
    walk, state, known = [0], 0, {(a, b): c for a, b, c in arrows}
    for text in texts[2:]:
        after = state
        for letter in text:
            after = known.get((after, letter), -1)
        walk += [f"?{text}"] if after < 0 else [text, 0, -1]
        state = state if after < 0 else after
    return visible.mask_call(rng, arrows, range(0, states, 2), texts, walk, size=size)


test_web_positions = check("15.7", count=[4, 5])(visible.test_web_positions)
test_web_draws = check("15.8", others=[1, 6])(visible.test_web_draws)
