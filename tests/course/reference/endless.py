"""The reference, except that it never stops: a package for tests that interrupt an answer."""

from solutions import generation
from solutions.config import Qwen3Config
from solutions.decoder import Qwen3ForCausalLM

__all__ = ["Qwen3Config", "Qwen3ForCausalLM", "generate"]


def generate(*args, eos_token_id, **settings):
    return generation.generate(*args, **settings)
