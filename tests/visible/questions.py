"""What every lab with the same part is asked: padding, a mask for one query, eval mode, and
roundings that can be told apart."""

import torch

from labkit.checks.declared import Outcome

# attention_mask, a row of digits per text: one text alone, the first one whole, the last whole
PADDED = [("00111",), ("11111", "00111"), ("00111", "11111")]


def mask_of(rows):
    """The attention_mask (B, T) of rows of digits."""
    return torch.tensor([[int(digit) for digit in row] for row in rows])


def in_eval_mode(builder):
    """A builder of calls that repeats the last step in eval mode, as eval() sets it: that
    returns the module, whose name is free."""

    def build(rng, **values):
        call = builder(rng, **values)
        again = call.steps[-1][1]
        return call.then("__setattr__", name="training", value=False).then("", **again)

    return build


def thirds(rng, *shape):
    """(*shape, 8) whole numbers whose root mean square is 3.

    A norm divides them by 3, and no third is halfway between two numbers of a half precision:
    every right order of operations rounds alike.
    """
    lines = torch.tensor([(7, 4, 2, 1, 1, 1, 0, 0), (8, 2, 2, 0, 0, 0, 0, 0)]).float()
    order = torch.argsort(rng.normal(*shape, 8), dim=-1)
    signs = 2 * rng.integers(0, 2, *shape, 8) - 1
    return lines[rng.integers(0, 2, *shape)].gather(-1, order) * signs


def exact_numbers(outcomes):
    """Half precision as float64, so that units in the last place are not forgiven."""

    def exact(value):
        if isinstance(value, (tuple, list)):
            return [exact(item) for item in value]
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return {"dtype": str(value.dtype), "numbers": value.double()}

    return [
        Outcome([exact(value) for value in o.values], failure=o.failure, changed=o.changed)
        for o in outcomes
    ]


def hunted(symbol, builder):
    """A builder of the same calls, of the symbol of a bug hunt."""

    def build(rng, **values):
        call = builder(rng, **values)
        call.symbol = symbol
        return call

    return build
