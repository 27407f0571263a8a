"""A rule for GatedDeltaNet."""

from collections.abc import Callable


def passing_rule() -> Callable:
    """Return a rule whose results prove that it was called, and with which g last."""

    def rule(query, key, value, g, beta, initial_state=None):
        return 3 * value, g[:, -1]  # (B, T, M, Q) and (B, M)

    return rule
