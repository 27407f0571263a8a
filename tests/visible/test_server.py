"""Visible checks of lab 15: what check("15.1") and its sisters run."""

import torch

from labkit.checks.declared import Call, Given, New, Outcome, check

F32, BF16 = torch.float32, torch.bfloat16


# 15.1


def pages_call(rng, shape=(4, 2, 1, 6), lengths=(5,), block_size=2, features=None, size=1.0,
               dtype=F32, spare=2, left_over=9.0, shared=0, **options):  # fmt: skip
    """Texts in blocks that lie anywhere in the pool; what no text has is left over.

    shape    (H, K, T, D)
    shared   how many blocks all texts begin with
    """
    heads, kv_heads, new, head_dim = shape
    counts = [-(-length // block_size) for length in lengths]
    order = rng.generator.permutation(sum(counts) + spare).tolist()
    table = torch.full((len(lengths), max(counts) + (spare > 2)), -1)
    for row, count in enumerate(counts):
        table[row, :count] = torch.tensor([order.pop() for _ in range(count)])
        table[row, :shared] = table[0, :shared]
    pools = []
    for width, shift in ((head_dim, 0.3), (features or head_dim, 1.0)):
        blocks = sum(counts) + spare
        pool = torch.full((blocks, kv_heads, block_size, width), left_over)
        for blocks, length in zip(table.tolist(), lengths, strict=True):
            for place in range(length):
                row = rng.normal(kv_heads, width) + shift
                pool[blocks[place // block_size], :, place % block_size] = row
        pools.append(pool.to(dtype))
    query = (size * rng.normal(len(lengths), heads, new, head_dim)).to(dtype)
    inputs = {"query": query, "key_blocks": pools[0], "value_blocks": pools[1]}
    inputs |= {"block_table": table, "lengths": torch.tensor(lengths)}
    return Call("paged_attention", **inputs, **options)


test_pages_one = check("15.1", "one token of one text, blocks of {block_size}",
                       shape=(1, 1, 1, 4), block_size=[8, 2, 1])(pages_call)  # fmt: skip
test_pages_prompt = check("15.1", "a prompt of 5 tokens, none cached, blocks of {block_size}",
                          shape=(2, 2, 5, 4), block_size=[8, 2])(pages_call)  # fmt: skip
test_pages_chunk = check("15.1", "the last 3 tokens of {lengths}", shape=(2, 2, 3, 4),
                         lengths=[(7,), (8,)], block_size=3)(pages_call)  # fmt: skip
test_pages_texts = check("15.1", "texts of {lengths} tokens, one new token of each",
                         shape=(2, 2, 1, 4), lengths=[(3, 7), (6, 1, 4)],
                         )(pages_call)  # fmt: skip
test_pages_both = check("15.1", "texts of {lengths} tokens, three new tokens of each",
                        shape=(2, 2, 3, 5), lengths=[(9, 3, 4)])(pages_call)  # fmt: skip
test_pages_heads = check("15.1", "which KV head a query head reads, (H, K, T, D) {shape}",
                         lengths=(4, 3),
                         shape=[(6, 2, 1, 3), (6, 2, 2, 3)])(pages_call)  # fmt: skip
test_pages_shared = check("15.1", "two texts that begin with the same blocks", lengths=(5, 7),
                          shape=(2, 1, 1, 4), shared=2)(pages_call)  # fmt: skip
test_pages_wide = check("15.1", "a table that is wider than the longest text", spare=3,
                        lengths=(4, 2))(pages_call)  # fmt: skip
test_pages_nan = check("15.1", "places behind a text hold {left_over}", lengths=(3, 6),
                       left_over=[float("nan"), float("inf")])(pages_call)  # fmt: skip
test_pages_scale = check("15.1", "scale {scale}, values with 3 features", scale=[0.7, 0.0],
                         features=3)(pages_call)  # fmt: skip
test_pages_large = check("15.1", "scores of some {size}: their exponentials overflow alone",
                         size=[400.0], lengths=(7,))(pages_call)  # fmt: skip


@check("15.1", size=[400.0])
def test_pages_negative(rng, size):
    """scores of some -{size} alone"""
    call = pages_call(rng, (2, 1, 1, 6), (7,), size=size)
    for name in ("query", "key_blocks"):
        call.steps[0][1][name] = call.steps[0][1][name].abs()
    call.steps[0][1]["query"].neg_()
    return call


test_pages_half = check("15.1", "{dtype}, with sums in float32", dtype=[BF16], size=3.0,
                        lengths=(30, 21),
                        shape=(4, 2, 2, 8), block_size=4)(pages_call)  # fmt: skip


@check("15.1", dtype=[BF16])
def test_pages_sums(rng, dtype, total=80):
    """{dtype}: many small weights after a large one, with sums in float32"""
    call = pages_call(rng, (2, 1, 1, 4), (total,), 1, dtype=dtype, scale=1.0, spare=0)
    inputs = call.steps[0][1]
    first = int(inputs["block_table"][0, 0])
    inputs["query"].fill_(1.0)
    inputs["key_blocks"].zero_()[first] = 1.5625  # a weight of 1, all others some 1 / 500
    inputs["value_blocks"].fill_(1.0)[first, :, :, :2] = torch.tensor([3.0, 0.0]).to(dtype)
    return call


@check("15.1", cases=[
    {"shape": (2, 1, 1, 4), "lengths": (300, 9), "most": 250},
    {"shape": (2, 2, 24, 4), "lengths": (90,), "most": 800},
    {"shape": (2, 1, 1, 4), "lengths": (300, 9), "most": 250, "dtype": BF16},
])  # fmt: skip
def test_pages_memory(rng, shape, lengths, most, block_size=4, dtype=F32):
    """no copy of all keys, no scores of all keys: texts of {lengths} tokens"""
    return pages_call(rng, shape, lengths, block_size, dtype=dtype, most_numbers=most)


test_pages_positions = check(
    "15.1", "arguments by position, in the order of the stub", scale=0.4, by_position=True,
)(pages_call)  # fmt: skip


# 15.2


def cached(rng, steps, num_blocks=8, block_size=2, kind=None, **options):
    """The steps of a PrefixCache, and its books in the end. Texts are letters, a token each.

    ("begin", n, letters)  ("?begin", n, letters)  ("commit", n, count)
    ("reserve", n, length)  ("?reserve", n, length)  ("free", n)
    """
    ids = rng.generator.permutation(1000)
    init = {"num_blocks": num_blocks, "block_size": block_size}
    if kind:
        init["hash_fn"] = Given("server.weak_hash", kind=kind)
    call, texts = Call("PrefixCache", init=init, **options), {}
    for action, sequence, *more in steps:
        if "begin" in action:
            texts[sequence] = [int(ids[ord(letter)]) for letter in more[0]]
            call.then(action, sequence=sequence, tokens=texts[sequence])
        elif action == "write":  # letters that the text goes on with
            texts[sequence] = texts[sequence] + [int(ids[ord(letter)]) for letter in more[0]]
        elif action == "commit":
            call.then(action, sequence=sequence, tokens=texts[sequence][: more[0]])
        elif "reserve" in action:
            call.then(action, sequence=sequence, length=more[0])
        else:
            call.then(action, sequence=sequence)
    for name in (".block_table", ".free_blocks", ".ref_count", ".asked", ".found"):
        call.then(name)
    return call


def cache_books(outcomes):
    """Of a PrefixCache: what begin returned, how many blocks are free, and which texts share
    which blocks. The blocks' numbers are left open: each is called by the order of its use."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    *values, tables, free, counts, asked, found = outcome.values
    try:
        letters = {}
        for _, table in sorted(tables.items()):
            for block in table:
                letters.setdefault(block, chr(ord("A") + len(letters)))
        shown = [block for table in tables.values() for block in table]
        books = [
            {f"block_table[{n}]": " ".join(letters[block] for block in table)
             for n, table in sorted(tables.items())},
            {"free blocks": len(set(free)), "free and in use": len(set(free) & set(shown)),
             "counts as in the tables": all(shown.count(b) == n for b, n in enumerate(counts))},
            {"asked": asked, "found": found},
        ]  # fmt: skip
    except (TypeError, AttributeError):
        return outcomes
    return [Outcome([*values, *books], changed=outcome.changed)]


def check_cache(*texts, **values):
    return check("15.2", *texts, view=cache_books, **values)(cached)


test_cache_one = check_cache("one text of 5 tokens, blocks of {block_size}",
                             block_size=[4, 2, 1], steps=(("begin", 7, "abcde"),))  # fmt: skip
test_cache_reserve = check_cache("a text that grows", steps=(
    ("begin", 0, "abc"), ("reserve", 0, 4), ("reserve", 0, 5), ("reserve", 0, 2)))  # fmt: skip
SECOND = (("begin", 0, "abcdefg"), ("commit", 0, 7), ("begin", 1, "abcdxyz"))
test_cache_second = check_cache("a second text begins with the same four tokens", steps=SECOND)
test_cache_left = check_cache("the first text has left", steps=[
    (*SECOND[:2], ("free", 0), SECOND[2]), (*SECOND, ("free", 0))], num_blocks=7)  # fmt: skip
test_cache_written = check_cache("blocks that are not written yet are not shared", steps=(
    ("begin", 0, "abcdefg"), ("commit", 0, 3), ("begin", 1, "abcdefg")))  # fmt: skip
test_cache_last = check_cache("the same text again: its last token is still to be run", steps=(
    ("begin", 0, "abcdef"), ("commit", 0, 6), ("begin", 1, "abcdef"), ("begin", 2, "abc"),
    ("begin", 3, "ab")), num_blocks=12)  # fmt: skip
test_cache_parent = check_cache("the same tokens behind a different beginning", steps=(
    ("begin", 0, "abcdef"), ("commit", 0, 6), ("begin", 1, "xbcdef"), ("begin", 2, "cdefg")),
    num_blocks=12)  # fmt: skip
test_cache_answer = check_cache("an answer becomes known, too: the next turn of a talk", steps=(
    ("begin", 0, "abc"), ("commit", 0, 3), ("reserve", 0, 7), ("write", 0, "defg"),
    ("commit", 0, 6), ("free", 0), ("begin", 1, "abcdefgh")))  # fmt: skip
TWICE = (("begin", 0, "abcdef"), ("begin", 1, "abcdxy"), ("commit", 0, 6), ("commit", 1, 6))
test_cache_twice = check_cache("two texts wrote the same blocks at the same time", steps=[
    TWICE, (*TWICE, ("free", 0), ("begin", 2, "abcdxyz"))], num_blocks=9)  # fmt: skip
OLDEST = (("begin", 0, "abcd"), ("commit", 0, 4), ("begin", 1, "uvwx"), ("commit", 1, 4),
          ("free", 0), ("free", 1))  # fmt: skip
test_cache_oldest = check_cache("the known block unused for longest goes first", steps=[
    (*OLDEST, ("begin", 2, "pq"), ("begin", 3, "uvwxy"), ("free", 3), ("begin", 4, "abc")),
    (*OLDEST, ("begin", 5, "abc"), ("free", 5), ("begin", 2, "pqr"), ("begin", 3, "abz")),
], num_blocks=5)  # fmt: skip
test_cache_end = check_cache("the end of a text goes before its beginning", steps=(
    ("begin", 0, "abcdef"), ("commit", 0, 6), ("free", 0), ("begin", 1, "uvwxy"), ("free", 1),
    ("begin", 2, "abcdefg")), num_blocks=5)  # fmt: skip
test_cache_unknown = check_cache("blocks that hold nothing known are taken first", steps=(
    ("begin", 0, "abcd"), ("commit", 0, 4), ("free", 0), ("begin", 1, "uvwx"), ("free", 1),
    ("begin", 2, "pqrs"), ("begin", 3, "abcde")), num_blocks=5)  # fmt: skip
test_cache_full = check_cache("too few blocks: ValueError, and nothing has changed", steps=[
    (("begin", 0, "abcd"), ("?begin", 1, "uvwxyz"), ("?reserve", 0, 10), ("reserve", 0, 8)),
    (("begin", 0, "ab"), ("?begin", 0, "cd"), ("begin", 1, "cd")),
], num_blocks=4)  # fmt: skip
test_cache_counted = check_cache(
    "known blocks that are free: shared, not taken", steps=[
        (*OLDEST, ("begin", 2, "abcdx")),
        (("begin", 0, "abcd"), ("commit", 0, 4), ("free", 0), ("?begin", 1, "abcdefghi")),
        (("begin", 0, "abcd"), ("commit", 0, 4), ("free", 0), ("begin", 1, "abcdefg")),
    ], num_blocks=4,
)  # fmt: skip
test_cache_collision = check_cache("two blocks with one hash: it is {kind}", cases=[
    {"kind": "the same for all", "steps": (
        ("begin", 0, "abcd"), ("commit", 0, 4), ("begin", 1, "xyz"), ("begin", 2, "abcde"))},
    {"kind": "of the block's own tokens alone", "steps": (
        ("begin", 0, "abcdef"), ("commit", 0, 6), ("begin", 1, "xycdef"), ("commit", 1, 6),
        ("begin", 2, "xycdefg"), ("begin", 3, "abcdefg"))},
    {"kind": "of the first token and the parent", "steps": (
        ("begin", 0, "abcd"), ("commit", 0, 4), ("begin", 1, "axcdz"), ("commit", 1, 5),
        ("begin", 2, "axcdz"), ("begin", 3, "abcdz"), ("begin", 4, "cdz"))},
], num_blocks=20)  # fmt: skip


test_cache_partial = check_cache(
    "two texts with the same tokens in a block that is not full", block_size=4,
    steps=(("begin", 0, "abcdef"), ("begin", 1, "abcdef"), ("commit", 0, 6), ("commit", 1, 6)),
)  # fmt: skip
test_cache_first = check_cache("known blocks behind one that is not known", steps=(
    ("begin", 0, "abcd"), ("commit", 0, 4), ("begin", 1, "xyabcd")))  # fmt: skip
test_cache_refused = check_cache(
    "a text that finds known blocks is refused: they are not used", num_blocks=5,
    steps=(*OLDEST, ("?begin", 2, "abcdefghijkl"), ("begin", 3, "pqr"), ("begin", 4, "uvwxy")),
)  # fmt: skip
test_cache_short = check_cache("too few blocks for a text that grows: it gets none", steps=(
    ("begin", 0, "ab"), ("?reserve", 0, 20), ("begin", 1, "cdefg")), num_blocks=4)  # fmt: skip


# 15.3


def planned(rng, requests, passes=6, blocks=40, block_size=2, budget=8, most=4, known=(),
            drafts=0, late=(), **options):  # fmt: skip
    """requests (prompt tokens, max_new_tokens); `late` ones come after two passes."""
    cache = Given("server.Blocks", num_blocks=blocks, block_size=block_size, known=list(known))
    call = Call(
        "Planner", init={"cache": cache, "budget": budget, "max_running": most}, **options
    )

    def submit(numbered):
        for number, (tokens, new) in numbered:
            prompt = rng.integers(0, 23, tokens).tolist()
            request = New("Request", number=number, prompt=prompt, max_new_tokens=new)
            call.then("submit", request=request)

    submit(enumerate(requests, 10))
    for number in range(2):
        call.then("dry_run", passes=passes if number else 2, drafts=drafts)
        if number == 0:
            submit(enumerate(late, 30))
    return call


def passes_of(outcomes):
    """Of a Planner, a line for each pass: what was planned, who runs and who waits."""
    outcome = outcomes[0]
    if outcome.failure:
        return outcomes
    logs = [value for value in outcome.values if isinstance(value, list) and value
            and isinstance(value[0], dict) and "planned" in value[0]]  # fmt: skip
    told = []
    for entry in (entry for log in logs for entry in log):
        if not isinstance(entry["planned"], dict):
            return outcomes
        plan = ", ".join(f"{n}: {count}" for n, count in sorted(entry["planned"].items()))
        told.append({"plan": f"{{{plan}}}", "running": str(entry["running"]),
                     "waiting": str(entry["waiting"])})  # fmt: skip
    return [Outcome(told, changed=outcome.changed)]


def check_plan(*texts, **values):
    return check("15.3", *texts, view=passes_of, **values)(planned)


test_plan_one = check_plan("one request, alone", requests=((3, 4),))
test_plan_together = check_plan("three requests, the budget is enough",
                                requests=((2, 3), (3, 2), (1, 4)))  # fmt: skip
test_plan_chunks = check_plan("a prompt of 20 tokens in chunks, budget {budget}",
                              requests=((20, 2),), budget=[8, 5])  # fmt: skip
test_plan_behind = check_plan("a long prompt behind two texts that are written",
                              requests=((2, 8), (3, 8)), late=((15, 2),))  # fmt: skip
test_plan_before = check_plan("two requests come while a long prompt is in chunks",
                              requests=((30, 3),), late=((2, 3), (3, 2)), passes=8)  # fmt: skip
test_plan_prompts = check_plan("two long prompts: the second gets a token in each pass",
                               requests=((12, 3), (14, 3)), passes=8)  # fmt: skip
test_plan_tight = check_plan("a budget of one token per running text", budget=3,
                             most=3, requests=((5, 3), (2, 4), (3, 2)), passes=10)  # fmt: skip
test_plan_most = check_plan("max_running 2, four requests", most=2,
                            requests=((2, 2), (3, 4), (1, 2), (4, 2)), passes=9)  # fmt: skip
test_plan_order = check_plan("nobody overtakes a request that has no room", blocks=6,
                             requests=((4, 4), (7, 2), (1, 2)), passes=9)  # fmt: skip
test_plan_known = check_plan("a prompt of which the cache knows tokens", known=((11, 8),),
                             requests=((3, 3), (13, 3)), passes=4)  # fmt: skip
test_plan_room = check_plan("a prompt of which the cache knows tokens, the budget is enough",
                            known=((11, 8),), budget=30,
                            requests=((3, 3), (13, 3)))  # fmt: skip
test_plan_preempted = check_plan("blocks run out: the text that came last goes back", blocks=7,
                                 requests=((3, 7), (3, 7), (3, 4)), passes=14)  # fmt: skip
test_plan_itself = check_plan("the last text itself needs the block", blocks=6,
                              requests=((4, 7), (3, 6)), passes=14)  # fmt: skip
test_plan_nobody = check_plan("nobody is admitted in a pass that preempts", blocks=7,
                              requests=((4, 8), (6, 5), (1, 2)), passes=14)  # fmt: skip
test_plan_drafts = check_plan("{drafts} drafts for each text, budget {budget}", drafts=[3],
                              budget=[20, 6], requests=((3, 8), (2, 7), (4, 6)))  # fmt: skip
test_plan_dropped = check_plan("a preempted text loses its drafts", drafts=2, blocks=7,
                               requests=((3, 7), (3, 7)), passes=10)  # fmt: skip


# 15.4


@check("15.4", cases=[
    {"words": "abcxabc", "count": 3}, {"words": "abcdab", "count": 2},
    {"words": "abcabdabe", "count": 3}, {"words": "aaaa", "count": 3},
    {"words": "abcd", "count": 3}, {"words": "xyaxyb", "count": 4},
    {"words": "abab", "count": 0}, {"words": "a", "count": 2},
    {"words": "bcadbcaebca", "count": 5}, {"words": "zbcqabcpbc", "count": 2},
])  # fmt: skip
def test_draft(rng, words, count, longest=3):
    """the text {words}, {count} tokens wanted"""
    ids = rng.generator.permutation(500)
    tokens = [int(ids[ord(letter)]) for letter in words]
    return Call("ngram_draft", tokens=tokens, count=count, longest=longest)


test_draft_longest = check("15.4", "the last {longest} tokens at most are looked for",
                           longest=[1, 2, 4], words="abcdpbcdqcdrdsabcd", count=2,
                           cases=[{}])(test_draft)  # fmt: skip


@check("15.4", passed=[0, 1, 3], count=3)
def test_accept(rng, passed, count=3):
    """{passed} of {count} drafts are right"""
    drafts = rng.integers(0, 50, count).tolist()
    choices = [*drafts, int(rng.integers(0, 50))]
    if passed < count:
        choices[passed] = drafts[passed] + 100
    return Call("accept_drafts", drafts=drafts, choices=choices)


test_accept_none = check("15.4", "no drafts: one token", passed=0, count=0)(test_accept)


@check("15.4", cases=[
    {"length": 5}, {"length": 4}, {"length": 7}, {"length": 8}, {"length": 20}, {"length": 0},
])  # fmt: skip
def test_rewind(rng, length, blocks=10, block_size=2, shared=1, named=()):
    """a text of four blocks goes back to {length} tokens"""
    order = rng.generator.permutation(blocks).tolist()
    tables = [[5, order[:4]], [6, order[:shared] + order[4:6]]]
    named = [order[at] for at in named]
    cache = Given("server.Blocks", num_blocks=blocks, block_size=block_size, tables=tables,
                  named=named)  # fmt: skip
    return Call("rewind", cache=cache, sequence=5, length=length)


test_rewind_shared = check("15.4", "blocks that another text has, too, do not become free",
                           length=3, shared=3)(test_rewind)  # fmt: skip
test_rewind_known = check("15.4", "known blocks go to the end of the free ones",
                          length=1, named=(1, 3))(test_rewind)  # fmt: skip


# 15.5


def pieces_call(rng, stops, pieces, rest=True, **options):
    call = Call("StopText", init={"stops": list(stops)}, **options)
    for piece in pieces:
        call.then("add", piece=piece).then(".stopped")
    return call.then("rest").then("rest") if rest else call


def check_stop(*texts, **values):
    return check("15.5", *texts, **values)(pieces_call)


test_stop_none = check_stop("no stop string", stops=(), pieces=("Once ", "upon", " a time"))
test_stop_inside = check_stop("a stop string inside a piece", stops=("END",),
                              pieces=("one ", "two END three", "four"))  # fmt: skip
test_stop_across = check_stop("a stop string across pieces", stops=("\n\nUser:",),
                              pieces=("Hello.\n", "\nUs", "er: hi", "more"))  # fmt: skip
test_stop_false = check_stop("the beginning of a stop string that does not go on",
                             stops=("STOP",), pieces=("a ST", "AR. S", "TO", "P!"))  # fmt: skip
test_stop_rest = check_stop("the answer ends while text is held back", stops=("###",),
                            pieces=("done #", "#"))  # fmt: skip
test_stop_first = check_stop("of two, the one that begins first counts", stops=("cd", "bcx"),
                             pieces=("a", "bcd"))  # fmt: skip
test_stop_two = check_stop("two complete ones in one piece", stops=("x", "yy"),
                           pieces=("ab yy x", "c"))  # fmt: skip
test_stop_itself = check_stop("a stop string whose end is its beginning", stops=("\n\n",),
                              pieces=("Hi\n\n", "User"))  # fmt: skip
test_stop_longer = check_stop("two stop strings begin: the earlier beginning is held back",
                              stops=("aab", "ab"), pieces=("xaa", "c", "yaa", "b"))  # fmt: skip
test_stop_again = check_stop("a beginning within a beginning", stops=("aab",),
                             pieces=("a", "a", "a", "b", "c"))  # fmt: skip


@check("15.5", size=[3])
def test_stop_drawn(rng, size, pieces=8):
    """letters at random, in random pieces, two stop strings of {size}"""

    def letters(count):
        return "".join("abc"[n] for n in rng.integers(0, 3, count).tolist())

    parts = [letters(int(n)) for n in rng.integers(1, 4, pieces)]
    return pieces_call(rng, [letters(size), letters(size + 1)], parts)


# 15.6

# Machines: (state, letters that may come, the state after them)
WORDS = [(0, "a", 1), (1, "b", 2), (2, "c", 3), (0, "x", 4), (4, "y", 3)]
STRING = [(0, '"', 1), (1, "abc\xc3", 1), (1, '"', 2)]
NUMBER = [(0, "-", 1), (0, "123", 2), (1, "123", 2), (2, "0123", 2)]
TEXTS = ("", "a", "b", "ab", "abc", "bc", "c", "xy", "y", "abcd", "<end>", "x", "ay")
QUOTES = ('"', "a", '"a', 'ab"', '""', 'c"c', "", "\xc3", '"c"', '"abc', "b\xc3")


def mask_call(rng, arrows, ends, texts, steps, eos=("<end>",), extra=0, size=3.0, shift=0.0,
              dtype=F32, **options):  # fmt: skip
    """Steps of a TokenMask: "a" is accepted, "?a" perhaps refused; 0 asks for what is allowed,
    1 for a mask of logits, -1 for one that is perhaps refused.

    extra    logits behind the end of the vocabulary
    """
    order = [texts[at] for at in rng.generator.permutation(len(texts)).tolist()]
    init = {"machine": Given("server.grammar", arrows=arrows, ends=list(ends))}
    init["vocabulary"] = Given("server.vocabulary", texts=order)
    init["eos_token_id"] = [order.index(text) for text in eos if text in texts]
    call = Call("TokenMask", init=init, **options)
    for step in steps:
        if step == 0:
            call.then("allowed")
        elif isinstance(step, int):
            logits = (size * rng.normal(len(texts) + extra) + shift).to(dtype)
            call.then("mask" if step > 0 else "?mask", logits=logits)
        else:
            question = "?" if step.startswith("?") else ""
            call.then(f"{question}accept", token=order.index(step.removeprefix("?")))
            call.then(".state")
    return call


def check_mask(*titles, arrows=WORDS, ends=(3,), texts=TEXTS, **values):
    fixed = {"arrows": tuple(arrows), "ends": ends, "texts": texts}
    return check("15.6", *titles, **fixed, **values)(mask_call)


test_mask_begin = check_mask(
    "what may come first, of tokens with one letter or many", steps=(0,)
)
test_mask_follow = check_mask("what may come after tokens that were accepted",
                              steps=("a", 0, "bc", 0))  # fmt: skip
test_mask_string = check_mask("a string: tokens that begin it, go on, end it, or do all three",
                              arrows=STRING, ends=(2,), texts=QUOTES,
                              steps=(0, '"a', 0, "\xc3", 0, 'ab"', 0))  # fmt: skip
test_mask_end = check_mask("the end token, where the answer may end",
                           steps=(0, "ab", 0, "c", 0, "<end>"))  # fmt: skip
test_mask_open = check_mask("an answer that may end or go on, and two end tokens",
                            arrows=NUMBER, ends=(2,), eos=("", "<end>"),
                            texts=("-", "1", "10", "-2", "0", "", "--", "<end>"),
                            steps=(0, "1", 0, "0", 0))  # fmt: skip
test_mask_spelled = check_mask("an end token whose bytes might come, too", arrows=STRING,
                               ends=(2,), texts=('"', "a", "b", '"c'), eos=("b", '"c'),
                               steps=(0, '"', 0, '"', 0))  # fmt: skip
test_mask_refused = check_mask("a token that is refused changes nothing",
                               steps=("?bc", "?", "?abcd", "a", "?y", "?<end>", 0))  # fmt: skip
test_mask_logits = check_mask("logits, {extra} behind the end of the vocabulary", extra=[0, 3],
                              steps=(1, "ab", 1, "c", 1))  # fmt: skip
test_mask_low = check_mask("logits far below zero", size=9.0, shift=-2e4, steps=(1, "a", 1))
test_mask_half = check_mask("logits in {dtype}", dtype=[BF16], steps=(1, "a", 1))
test_mask_nothing = check_mask("nothing may follow: a ValueError", eos=(), steps=("abc", 0, -1))


@check("15.7", count=3)
def test_web_positions(rng, count):
    """{count} texts of different lengths"""
    return Call("web_positions", lengths=rng.integers(2, 20, count).tolist())


@check("15.8", others=3)
def test_web_draws(rng, others):
    """alone, and with {others} others"""
    seed = int(rng.integers(0, 1000))
    return [Call("web_draws", readers=n, seed=seed) for n in (1, 1 + others)]
