"""Hidden checks of lab 02: fresh numbers, odd shapes, other dtypes, gradients, properties.

An angle of many turns shows the rounding of its frequency, which differs from one right way
of writing it to the next. So positions are kept so small that no pair but the first, whose
frequency is exactly 1, turns by more than about 20.
"""

import pytest
import torch
from visible.test_rope import (
    alibi_call,
    cos_sin_call,
    half_precision_rotation_call,
    learned_call,
    relative_scores_call,
    rotation_call,
    sinusoidal_call,
    tables,
    yarn_call,
)

from labkit.checks.runner import Call, compare

HALF = [torch.bfloat16, torch.float16]


@pytest.mark.exercise("2.1")
class TestRopeCosSin:
    @pytest.mark.parametrize("head_dim", [2, 10, 64])
    def test_head_dim(self, student, reference, rng, head_dim):
        """head_dim {head_dim}"""
        compare(student, reference, cos_sin_call(rng.integers(1, 24, 7), head_dim))

    @pytest.mark.parametrize("rope_theta", [200.0, 5e5, 1e6])
    def test_theta(self, student, reference, rng, rope_theta):
        """rope_theta {rope_theta}"""
        compare(student, reference, cos_sin_call(rng.integers(1, 40, 6), 6, rope_theta))

    @pytest.mark.parametrize("shape", [(1, 6), (3, 4), (2, 2, 3)])
    def test_every_row_its_own(self, student, reference, rng, shape):
        """every text with positions of its own, shape {shape}"""
        compare(student, reference, cos_sin_call(rng.integers(0, 99, *shape), head_dim=8))

    def test_after_a_cache(self, student, reference, rng):
        """positions that go on after a cache"""
        start = int(rng.integers(7, 90, 1))
        for length in (4, 1):
            call = cos_sin_call(start + torch.arange(length)[None], head_dim=8)
            compare(student, reference, call)

    def test_gaps(self, student, reference, rng):
        """positions with gaps, and not in order"""
        gaps = rng.integers(2, 9, 5).cumsum(0)
        compare(student, reference, cos_sin_call(gaps.flip(0), 8, 1e6))

    @pytest.mark.points(2)
    def test_large_positions(self, student, reference, rng):
        """large positions, where only float32 still counts"""
        for head_dim, rope_theta, most in ((2, 1e4, 2**20), (4, 1e6, 20000)):
            call = cos_sin_call(rng.integers(5000, most, 2, 8), head_dim, rope_theta)
            compare(student, reference, call)

    def test_position_zero(self, student, reference, rng):
        """position 0, where nothing turns"""
        call = cos_sin_call(torch.tensor([0, int(rng.integers(1, 60, 1)), 0]), head_dim=8)
        outcome = compare(student, reference, call)
        cos, sin = outcome.value
        assert (cos[0] == 1).all(), "cos is not 1 at position 0"
        assert (sin[0] == 0).all(), "sin is not 0 at position 0"

    def test_by_position(self, student, reference, rng):
        """arguments by position: position_ids, head_dim, rope_theta"""
        call = cos_sin_call(rng.integers(1, 60, 5), head_dim=8, by_position=True)
        compare(student, reference, call)

    def test_strided_positions(self, student, reference, rng):
        """positions that are not contiguous, and that stay as they were"""
        compare(student, reference, cos_sin_call(rng.integers(1, 60, 5, 3).T, head_dim=8))


@pytest.mark.exercise("2.2")
class TestRotateHalf:
    @pytest.mark.parametrize("shape", [(8,), (4, 4), (2, 3, 6), (2, 4, 6, 10), (1, 3, 1, 2)])
    def test_values(self, student, reference, rng, shape):
        """values for any number of axes"""
        compare(student, reference, Call("rotate_half", x=rng.normal(*shape)))

    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype}"""
        compare(student, reference, Call("rotate_half", x=rng.normal(2, 4, 6, dtype=dtype)))

    def test_strided_input(self, student, reference, rng):
        """an input that is not contiguous, and that stays as it was"""
        compare(student, reference, Call("rotate_half", x=rng.normal(6, 4, 2).transpose(0, 2)))

    def test_twice(self, student, reference, rng):
        """twice in a row, which gives -x"""
        once = compare(student, reference, Call("rotate_half", x=rng.normal(2, 6)))
        compare(student, reference, Call("rotate_half", x=once.value))

    def test_gradients(self, student, reference, rng):
        """gradients"""
        compare(student, reference, Call("rotate_half", x=rng.normal(3, 2, 8), grad=True))


@pytest.mark.exercise("2.3")
class TestApplyRotaryPosEmb:
    def call(self, rng, heads=(4, 2), length=3, head_dim=8, batch=2, rows=None, **options):
        positions = rng.integers(1, 50, *((batch, length) if rows is None else rows))
        angles = positions[..., None] * rng.uniform(head_dim // 2, low=0.01, high=2.0)
        return rotation_call(rng, angles, heads, length, batch, **options)

    @pytest.mark.points(3)
    @pytest.mark.parametrize(
        "sizes", [(3, (4, 2), 5, 6), (1, (5, 1), 1, 2), (2, (3, 3), 7, 10)]
    )
    def test_values(self, student, reference, rng, sizes):
        """values"""
        batch, heads, length, head_dim = sizes
        compare(student, reference, self.call(rng, heads, length, head_dim, batch))

    @pytest.mark.parametrize("sizes", [(4, (4, 2), 3), (2, (5, 5), 5)])
    def test_equal_sizes(self, student, reference, rng, sizes):
        """as many texts or tokens as heads, where a wrong axis goes unnoticed"""
        batch, heads, length = sizes
        compare(student, reference, self.call(rng, heads, length, 6, batch))

    @pytest.mark.parametrize("rows", [(5,), (1, 5)])
    def test_one_row_for_all(self, student, reference, rng, rows):
        """one row of positions for all texts, shape {rows}"""
        compare(student, reference, self.call(rng, length=5, batch=3, rows=rows))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype} with tables in float32"""
        angles = torch.tensor([[[1.0], [2], [3]]]) * rng.uniform(4, low=0.1, high=0.4)
        compare(student, reference, half_precision_rotation_call(rng, angles, dtype))

    @pytest.mark.points(2)
    def test_offset_alone(self, student, reference, rng):
        """scores depend on the offset alone"""
        query, key = rng.normal(1, 3, 1, 8), rng.normal(1, 3, 1, 8)
        frequencies = rng.uniform(4, low=0.01, high=1.5)
        places = torch.tensor([[[0], [7], [24]]])  # after a cache, positions do not start at 0
        inputs = {"query": query.repeat(1, 1, 3, 1), "key": key.repeat(1, 1, 3, 1)}
        found = []
        for shift in (0, int(rng.integers(1, 40, 1))):
            angles = (places + shift) * frequencies
            call = Call("apply_rotary_pos_emb", **inputs, **tables(angles))
            outcome = compare(student, reference, call)
            found.append(outcome.value[0] @ outcome.value[1].mT)  # (1, H, T, T)
        gap = (found[0] - found[1]).abs().max().item()
        assert gap < 1e-3, "moving query and key by the same number of places changes a score"

    def test_norm_kept(self, student, reference, rng):
        """the lengths of query and key stay"""
        call = self.call(rng, length=6)
        outcome = compare(student, reference, call)
        for turned, name in zip(outcome.value, ("query", "key"), strict=True):
            before = call.steps[0][1][name].norm(dim=-1)
            assert torch.allclose(turned.norm(dim=-1), before, rtol=1e-4), (
                f"the turn changes the length of {name}"
            )

    def test_position_zero(self, student, reference, rng):
        """position 0, where nothing moves"""
        call = self.call(rng, length=2)
        places = torch.tensor([[[0], [3]], [[0], [8]]])
        call.steps[0][1].update(tables(places * rng.uniform(4, low=0.1, high=1.0)))
        outcome = compare(student, reference, call)
        for turned, name in zip(outcome.value, ("query", "key"), strict=True):
            still = torch.equal(turned[:, :, 0], call.steps[0][1][name][:, :, 0])
            assert still, f"{name} moves at position 0"

    @pytest.mark.points(2)
    def test_by_position(self, student, reference, rng):
        """arguments by position: query, key, cos, sin"""
        compare(student, reference, self.call(rng, by_position=True))

    def test_strided_input(self, student, reference, rng):
        """inputs that are not contiguous, and that stay as they were"""
        call = self.call(rng, length=5)
        call.steps[0][1]["query"] = rng.normal(2, 5, 4, 8).transpose(1, 2)
        call.steps[0][1]["key"] = rng.normal(8, 2, 5, 2).permute(1, 3, 2, 0)
        compare(student, reference, call)

    @pytest.mark.points(3)
    def test_gradients(self, student, reference, rng):
        """gradients of query and key"""
        compare(student, reference, self.call(rng, length=4, grad=("query", "key")))


@pytest.mark.exercise("2.4")
class TestSinusoidalEmbedding:
    @pytest.mark.parametrize("hidden_size", [2, 6, 8, 64])
    def test_values(self, student, reference, rng, hidden_size):
        """hidden_size {hidden_size}"""
        compare(student, reference, sinusoidal_call(rng.integers(1, 24, 7), hidden_size))

    @pytest.mark.parametrize("hidden_size", [1, 5, 9])
    def test_odd_size(self, student, reference, rng, hidden_size):
        """hidden_size {hidden_size}, with a sine to spare"""
        compare(student, reference, sinusoidal_call(rng.integers(1, 60, 5), hidden_size))

    @pytest.mark.parametrize("shape", [(1, 4), (3, 5), (2, 2, 3)])
    def test_every_row_its_own(self, student, reference, rng, shape):
        """positions of shape {shape}"""
        compare(student, reference, sinusoidal_call(rng.integers(0, 60, *shape), 6))

    def test_large_positions(self, student, reference, rng):
        """large positions, where only float32 still counts"""
        compare(student, reference, sinusoidal_call(rng.integers(5000, 100000, 9), 2))

    def test_by_position(self, student, reference, rng):
        """arguments by position: position_ids, hidden_size"""
        call = sinusoidal_call(rng.integers(1, 60, 3, 4).T, 8, by_position=True)
        compare(student, reference, call)


@pytest.mark.exercise("2.5")
class TestAlibiBias:
    @pytest.mark.parametrize("num_heads", [1, 2, 8, 16])
    def test_powers_of_two(self, student, reference, rng, num_heads):
        """{num_heads} heads"""
        length = int(rng.integers(3, 9, 1))
        compare(student, reference, alibi_call(num_heads, length, length))

    @pytest.mark.parametrize("num_heads", [3, 6, 12, 20])
    def test_other_numbers(self, student, reference, rng, num_heads):
        """{num_heads} heads, no power of two"""
        length = int(rng.integers(3, 9, 1))
        compare(student, reference, alibi_call(num_heads, length, length))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("query_length", [1, 3])
    def test_after_a_cache(self, student, reference, rng, query_length):
        """the last {query_length} queries of more keys"""
        call = alibi_call(4, query_length, query_length + int(rng.integers(2, 9, 1)))
        compare(student, reference, call)

    def test_long(self, student, reference, rng):
        """thousands of keys, where only float32 still counts"""
        compare(student, reference, alibi_call(3, 2, 2100 + int(rng.integers(0, 200, 1))))

    def test_by_position(self, student, reference, rng):
        """arguments by position: num_heads, query_length, key_length"""
        call = alibi_call(5, 2, int(rng.integers(6, 12, 1)), by_position=True)
        compare(student, reference, call)


@pytest.mark.exercise("2.6")
class TestRelativeScores:
    @pytest.mark.points(2)
    @pytest.mark.parametrize("length", [2, 5, 8])
    def test_values(self, student, reference, rng, length):
        """{length} tokens"""
        compare(student, reference, relative_scores_call(rng, length, length))

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("new", "total"), [(1, 6), (3, 7), (1, 1)])
    def test_after_a_cache(self, student, reference, rng, new, total):
        """queries: {new}, keys: {total}"""
        call = relative_scores_call(rng, new, total, batch=1, heads=2, head_dim=6)
        compare(student, reference, call)

    def test_equal_sizes(self, student, reference, rng):
        """as many tokens as heads and texts"""
        call = relative_scores_call(rng, 3, 3, batch=3, heads=3, head_dim=3)
        compare(student, reference, call)

    def test_offset_alone(self, student, reference, rng):
        """with equal tokens, scores depend on the offset alone"""
        call = relative_scores_call(rng, 5, 5)
        for name in ("query", "key"):
            call.steps[0][1][name] = rng.normal(2, 3, 1, 4).repeat(1, 1, 5, 1)
        outcome = compare(student, reference, call)
        moved = (outcome.value[..., 1:, 1:] - outcome.value[..., :-1, :-1]).nan_to_num(0.0)
        assert moved.abs().max() < 1e-3, "one place further on, a score differs"

    def test_by_position(self, student, reference, rng):
        """arguments by position"""
        compare(student, reference, relative_scores_call(rng, 2, 4, by_position=True))

    def test_gradients(self, student, reference, rng):
        """gradients of all five inputs"""
        call = relative_scores_call(rng, 1, 5, grad=True)  # one query: nothing is hidden
        compare(student, reference, call)


@pytest.mark.exercise("2.7")
class TestYarnCosSin:
    def call(self, rng, **options):
        return yarn_call(rng.integers(1, 30, 2, 5), **options)

    @pytest.mark.points(2)
    @pytest.mark.parametrize("factor", [1.0, 2.5, 8.0])
    def test_factor(self, student, reference, rng, factor):
        """factor {factor}"""
        compare(student, reference, self.call(rng, factor=factor))

    @pytest.mark.points(2)
    @pytest.mark.parametrize("sizes", [(1500, 1e4, 10), (3617, 1e4, 32), (32768, 1e6, 12)])
    def test_sizes(self, student, reference, rng, sizes):
        """trained length, rope_theta and head_dim {sizes}"""
        trained, theta, head_dim = sizes
        call = self.call(rng, trained=trained, theta=theta, head_dim=head_dim)
        compare(student, reference, call)

    @pytest.mark.parametrize("trained", [6, 100])
    def test_short(self, student, reference, rng, trained):
        """a trained length of {trained}, where the ramp begins at pair 0"""
        compare(student, reference, self.call(rng, trained=trained))

    @pytest.mark.parametrize("trained", [500, 800])
    def test_far_end(self, student, reference, rng, trained):
        """a trained length of {trained} with rope_theta 10, where the ramp ends at D - 1"""
        compare(student, reference, self.call(rng, trained=trained, theta=10.0))

    @pytest.mark.parametrize("attention_factor", [1.7, 1.0])
    def test_explicit_factor(self, student, reference, rng, attention_factor):
        """attention_factor {attention_factor}, not left to the formula"""
        compare(student, reference, self.call(rng, attention_factor=attention_factor))

    @pytest.mark.points(2)
    def test_betas(self, student, reference, rng):
        """other beta_fast and beta_slow"""
        compare(student, reference, self.call(rng, beta_fast=60.0, beta_slow=4.0))

    def test_by_position(self, student, reference, rng):
        """arguments by position"""
        more = {"attention_factor": 1.3, "beta_fast": 20.0, "beta_slow": 2.0}
        compare(student, reference, self.call(rng, **more, by_position=True))

    def test_large_positions(self, student, reference, rng):
        """large positions, where only float32 still counts"""
        call = self.call(rng, trained=32768, theta=1e6, head_dim=2)
        call.steps[0][1]["position_ids"] = rng.integers(5000, 100000, 9)
        compare(student, reference, call)


@pytest.mark.exercise("2.8")
class TestLearnedPositions:
    @pytest.mark.parametrize("sizes", [(5, 11, 3, 8), (1, 4, 1, 3), (9, 9, 2, 6)])
    def test_values(self, student, reference, rng, sizes):
        """T, places, B and E {sizes}, from place 0 on"""
        new, rows, batch, size = sizes
        call = learned_call(rng, None, new, rows=rows, batch=batch, size=size, names=True)
        compare(student, reference, call)

    @pytest.mark.points(2)
    @pytest.mark.parametrize(("start", "new"), [(1, 5), (4, 1), (9, 2)])
    def test_start(self, student, reference, rng, start, new):
        """T {new} of 11 places, from place {start} on"""
        compare(student, reference, learned_call(rng, start, new, rows=11, batch=3, size=4))

    @pytest.mark.parametrize(("start", "new"), [(0, 12), (10, 2), (11, 1), (40, 3)])
    def test_too_long(self, student, reference, rng, start, new):
        """T {new} of 11 places, from place {start} on: too far"""
        compare(student, reference, learned_call(rng, start, new, rows=11))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("start", [-1, -5])
    def test_negative(self, student, reference, rng, start):
        """a start below 0: {start}"""
        compare(student, reference, learned_call(rng, start, 3, rows=11))

    @pytest.mark.points(0.5)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision(self, student, reference, rng, dtype):
        """{dtype}"""
        compare(student, reference, learned_call(rng, 2, 4, dtype=dtype))

    @pytest.mark.points(0.5)
    def test_by_position(self, student, reference, rng):
        """arguments by position: hidden_states, start"""
        compare(student, reference, learned_call(rng, 2, 3, batch=1, by_position=True))

    @pytest.mark.points(0.5)
    def test_gradients(self, student, reference, rng):
        """gradients of the embeddings and the table"""
        compare(student, reference, learned_call(rng, 3, 4, batch=3, grad=True))
