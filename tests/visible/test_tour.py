"""Visible checks of lab 00: what check("0.1") runs."""

from labkit.checks.declared import Call, check


@check("0.1", cases=[{"texts": b, "tokens": t} for b, t in ((4, 6), (1, 1), (2, 1))])
def test_next_token(rng, texts, tokens):
    """B = {texts}, T = {tokens}"""
    return Call("next_token", logits=rng.normal(texts, tokens, 16))
