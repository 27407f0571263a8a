"""Visible checks of lab 02: what check("2.1") and its sisters run."""

import pytest
import torch

from labkit.checks.runner import Call, compare


def cos_sin_call(position_ids, head_dim=6, rope_theta=1e4, **options):
    inputs = {"head_dim": head_dim, "rope_theta": rope_theta}
    call = Call("rope_cos_sin", position_ids=position_ids, **inputs, **options)
    return call.returning("cos", "sin")


@pytest.mark.exercise("2.1")
class TestRopeCosSin:
    def test_values(self, student, reference, rng):
        """values for positions 0 to 4"""
        compare(student, reference, cos_sin_call(torch.arange(5)))

    def test_theta(self, student, reference, rng):
        """rope_theta 1000000, Qwen3's"""
        compare(student, reference, cos_sin_call(torch.arange(5), rope_theta=1e6))

    def test_cache(self, student, reference, rng):
        """positions that do not start at 0"""
        compare(student, reference, cos_sin_call(torch.arange(7, 11)))

    def test_gaps(self, student, reference, rng):
        """positions with gaps"""
        compare(student, reference, cos_sin_call(torch.tensor([0, 1, 5, 20])))

    def test_rows(self, student, reference, rng):
        """every text with positions of its own"""
        compare(student, reference, cos_sin_call(rng.integers(0, 60, 2, 4)))

    def test_large(self, student, reference, rng):
        """large positions, where only float32 still counts"""
        compare(student, reference, cos_sin_call(torch.tensor([4097, 12345]), 4, 1e6))

    def test_by_position(self, student, reference, rng):
        """arguments by position: position_ids, head_dim, rope_theta"""
        compare(student, reference, cos_sin_call(torch.tensor([3, 50]), by_position=True))


@pytest.mark.exercise("2.2")
class TestRotateHalf:
    def test_vector(self, student, reference, rng):
        """one vector, (1, 2, 3, 4, 5, 6)"""
        compare(student, reference, Call("rotate_half", x=torch.arange(1.0, 7.0)))

    def test_values(self, student, reference, rng):
        """values for shape (B, H, T, D)"""
        compare(student, reference, Call("rotate_half", x=rng.normal(2, 4, 6, 8)))

    def test_half_precision(self, student, reference, rng):
        """bfloat16"""
        call = Call("rotate_half", x=rng.normal(2, 4, dtype=torch.bfloat16))
        compare(student, reference, call)

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, Call("rotate_half", x=rng.normal(2, 4), grad=True))


def tables(angles):
    """cos and sin (..., T, D) of angles (..., T, D/2)."""
    angles = torch.cat((angles, angles), dim=-1)
    angles = angles.double()  # float32 differs from processor to processor
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def rotation_call(rng, angles, heads=(4, 2), length=3, batch=2, **options):
    query, key = (rng.normal(batch, count, length, 2 * angles.size(-1)) for count in heads)
    given = {"query": query, "key": key, **tables(angles), **options}
    return Call("apply_rotary_pos_emb", **given).returning("query", "key")


def half_precision_rotation_call(rng, angles, dtype):
    inputs = {}
    for name, heads in (("query", 4), ("key", 2)):  # nothing cancels: roundings stay small
        large, small = rng.uniform(2, 2, heads, 3, angles.size(-1), low=-0.1, high=0.1)
        inputs[name] = torch.cat((1.5 + large, small), dim=-1).to(dtype)
    return Call("apply_rotary_pos_emb", **inputs, **tables(angles)).returning("query", "key")


@pytest.mark.exercise("2.3")
class TestApplyRotaryPosEmb:
    def call(self, rng, heads=(4, 2), length=3, batch=2, rows=None, **options):
        angles = rng.uniform(*(rows or (batch, length)), 3, low=-3.0, high=3.0)
        return rotation_call(rng, angles, heads, length, batch, **options)

    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, self.call(rng))

    def test_one_row(self, student, reference, rng):
        """one row of angles for all texts, shape (T, D)"""
        compare(student, reference, self.call(rng, rows=(3,)))

    @pytest.mark.parametrize("sizes", [(3, 5, 3), (2, 3, 3)])
    def test_equal_sizes(self, student, reference, rng, sizes):
        """as many texts or tokens as heads, where a wrong axis goes unnoticed"""
        batch, length, heads = sizes
        compare(student, reference, self.call(rng, (heads, heads), length, batch))

    def test_half_precision(self, student, reference, rng):
        """bfloat16 with tables in float32"""
        angles = rng.uniform(1, 3, 3, low=0.3, high=1.2)
        compare(student, reference, half_precision_rotation_call(rng, angles, torch.bfloat16))

    def test_by_position(self, student, reference, rng):
        """arguments by position: query, key, cos, sin"""
        compare(student, reference, self.call(rng, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients of query and key"""
        compare(student, reference, self.call(rng, grad=("query", "key")))


def sinusoidal_call(position_ids, hidden_size, **options):
    inputs = {"position_ids": position_ids, "hidden_size": hidden_size}
    return Call("sinusoidal_embedding", **inputs, **options)


@pytest.mark.exercise("2.4")
class TestSinusoidalEmbedding:
    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, sinusoidal_call(torch.arange(5), 6))

    def test_odd_size(self, student, reference, rng):
        """an odd size, with a sine to spare"""
        compare(student, reference, sinusoidal_call(torch.arange(4), 5))

    def test_rows(self, student, reference, rng):
        """positions that do not start at 0, for each text its own"""
        compare(student, reference, sinusoidal_call(rng.integers(5, 60, 2, 3), 6))

    def test_large(self, student, reference, rng):
        """large positions, where only float32 still counts"""
        compare(student, reference, sinusoidal_call(torch.tensor([4097, 12345]), 2))

    def test_by_position(self, student, reference, rng):
        """arguments by position: position_ids, hidden_size"""
        compare(student, reference, sinusoidal_call(torch.tensor([3, 50]), 8, by_position=True))


def alibi_call(num_heads, query_length, key_length, **options):
    lengths = {"query_length": query_length, "key_length": key_length}
    return Call("alibi_bias", num_heads=num_heads, **lengths, **options)


@pytest.mark.exercise("2.5")
class TestAlibiBias:
    @pytest.mark.parametrize("num_heads", [8, 4, 12])
    def test_heads(self, student, reference, rng, num_heads):
        """{num_heads} heads"""
        compare(student, reference, alibi_call(num_heads, 4, 4))

    def test_cache(self, student, reference, rng):
        """the last 2 queries of 5 keys"""
        compare(student, reference, alibi_call(4, 2, 5))

    def test_long(self, student, reference, rng):
        """the last query of 2100 keys, where only float32 still counts"""
        compare(student, reference, alibi_call(2, 1, 2100))

    def test_by_position(self, student, reference, rng):
        """arguments by position: num_heads, query_length, key_length"""
        compare(student, reference, alibi_call(2, 3, 4, by_position=True))


def relative_scores_call(rng, new, total, batch=2, heads=3, head_dim=4, **options):
    inputs = {
        "query": rng.normal(batch, heads, new, head_dim),
        "key": rng.normal(batch, heads, total, head_dim),
        "relative_key": rng.normal(heads, total, head_dim),
        "content_bias": rng.normal(heads, head_dim),
        "position_bias": rng.normal(heads, head_dim),
    }
    return Call("relative_scores", **inputs, **options)


@pytest.mark.exercise("2.6")
class TestRelativeScores:
    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, relative_scores_call(rng, 5, 5))

    @pytest.mark.parametrize("new", [1, 2])
    def test_cache(self, student, reference, rng, new):
        """queries: {new}, keys: 5"""
        compare(student, reference, relative_scores_call(rng, new, 5))

    def test_by_position(self, student, reference, rng):
        """arguments by position"""
        compare(student, reference, relative_scores_call(rng, 2, 4, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients of all five inputs"""
        compare(student, reference, relative_scores_call(rng, 1, 4, grad=True))


def yarn_call(position_ids, trained=4096, theta=100.0, factor=4.0, head_dim=16, **options):
    inputs = {
        "position_ids": position_ids,
        "head_dim": head_dim,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": trained,
    }
    return Call("yarn_cos_sin", **inputs, **options).returning("cos", "sin")


@pytest.mark.exercise("2.7")
class TestYarnCosSin:
    def call(self, **options):
        return yarn_call(torch.tensor([0, 1, 7, 29]), **options)

    def test_values(self, student, reference, rng):
        """values"""
        compare(student, reference, self.call(trained=1290, theta=1e4, head_dim=10))

    @pytest.mark.parametrize("factor", [1.0, 8.0])
    def test_factor(self, student, reference, rng, factor):
        """factor {factor}"""
        compare(student, reference, self.call(factor=factor))

    @pytest.mark.parametrize("trained", [6, 100])
    def test_short(self, student, reference, rng, trained):
        """a trained length of {trained}, where the ramp begins at pair 0"""
        compare(student, reference, self.call(trained=trained))

    def test_far_end(self, student, reference, rng):
        """a trained length of 800 with rope_theta 10, where the ramp ends at D - 1"""
        compare(student, reference, self.call(trained=800, theta=10.0))

    @pytest.mark.parametrize("attention_factor", [1.7, 1.0])
    def test_explicit_factor(self, student, reference, rng, attention_factor):
        """attention_factor {attention_factor}, not left to the formula"""
        compare(student, reference, self.call(attention_factor=attention_factor))

    def test_betas(self, student, reference, rng):
        """other beta_fast and beta_slow"""
        compare(student, reference, self.call(beta_fast=60.0, beta_slow=4.0))

    def test_by_position(self, student, reference, rng):
        """arguments by position"""
        more = {"attention_factor": 1.3, "beta_fast": 20.0, "beta_slow": 2.0}
        compare(student, reference, self.call(**more, by_position=True))


def learned_call(rng, start, new, rows=7, batch=2, size=5, dtype=torch.float32, **options):
    """The tokens of a text from place `start` on; None leaves it to the default."""
    init = {"max_position_embeddings": rows, "hidden_size": size}
    state = {"wpe.weight": rng.normal(rows, size)}
    inputs = {"hidden_states": rng.normal(batch, new, size).to(dtype)}
    if start is not None:
        inputs["start"] = start
    return Call("LearnedPositions", init=init, state=state, dtype=dtype, **inputs, **options)


@pytest.mark.exercise("2.8")
class TestLearnedPositions:
    def test_made(self, student, reference, rng):
        """freshly made: it holds wpe, with a row for each place"""
        call = Call("LearnedPositions", init={"max_position_embeddings": 7, "hidden_size": 5})
        call.names = True
        compare(student, reference, call)

    def test_values(self, student, reference, rng):
        """values, from place 0 on"""
        compare(student, reference, learned_call(rng, None, 4))

    def test_full(self, student, reference, rng):
        """a text as long as the table"""
        compare(student, reference, learned_call(rng, 0, 7))

    @pytest.mark.parametrize("start", [3, 5])
    def test_start(self, student, reference, rng, start):
        """2 tokens after {start} that a cache holds, of 7 places"""
        compare(student, reference, learned_call(rng, start, 2))

    @pytest.mark.parametrize(("start", "new"), [(0, 8), (6, 2), (7, 1)])
    def test_too_long(self, student, reference, rng, start, new):
        """tokens behind the last of 7 places: start {start}, T {new}"""
        compare(student, reference, learned_call(rng, start, new))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("start", [-1, -7])
    def test_negative(self, student, reference, rng, start):
        """a start below 0: {start}"""
        compare(student, reference, learned_call(rng, start, 2))

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position: hidden_states, start"""
        compare(student, reference, learned_call(rng, 1, 3, by_position=True))

    @pytest.mark.points(0.5)
    def test_gradients(self, student, reference, rng):
        """gradients of the embeddings and the table"""
        compare(student, reference, learned_call(rng, 2, 3, grad=True))
