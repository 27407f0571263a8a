"""Lab 00: practice, before the course begins.

Shapes: B batch, T tokens, V vocab_size.
"""

import torch
from torch import Tensor


# %% exercise 0.1: next_token
def next_token(logits: Tensor) -> Tensor:
    """Of each text, the id that the model scores highest to come next.

    The scores for what comes next stand at the last token.

    Shapes: logits (B, T, V) -> (B,) token ids
    """
    ### BEGIN SOLUTION
    return torch.argmax(logits[:, -1], dim=-1)  # (B,)
    ### END SOLUTION
