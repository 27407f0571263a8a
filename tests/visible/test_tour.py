"""Visible checks of lab 00: what check("0.1") runs."""

import pytest

from labkit.checks.runner import Call, compare


@pytest.mark.exercise("0.1")
@pytest.mark.parametrize(("texts", "tokens"), [(4, 6), (1, 1), (2, 1)])
def test_next_token(student, reference, rng, texts, tokens):
    """B = {texts}, T = {tokens}"""
    compare(student, reference, Call("next_token", logits=rng.normal(texts, tokens, 16)))
