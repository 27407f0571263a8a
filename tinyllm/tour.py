"""Lab 00: practice, before the course begins.

Shapes: B batch, T tokens, V vocab_size.
"""

import torch
from torch import Tensor


# %% exercise 0.1: next_token
def next_token(logits: Tensor) -> Tensor:
    """For each text, the id of the token that the model scores highest.

    The scores of the next token are at the last position.

    Shapes: logits (B, T, V) -> (B,) token ids
    """
    # YOUR CODE HERE (about 1 line)
    raise NotImplementedError("Exercise 0.1: next_token")
