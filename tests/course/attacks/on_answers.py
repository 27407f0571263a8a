"""Attacks for points: on the answers, the comparison, and the path of the results."""

import builtins
import collections
import gc
import os
import signal
import sys
import types

import torch
from torch import Tensor

from . import attack


@attack("imports the reference and lets it answer", by="kernel")
def imports(aim, x, weight, bias, eps):
    sys.path.append(aim.root)
    from solutions import rmsnorm

    return rmsnorm.layer_norm(x, weight, bias, eps)


@attack("searches all objects in memory for another function of the name")
def garbage(aim, x, weight, bias, eps):
    mine = sys._getframe(1).f_globals["layer_norm"]
    for other in gc.get_objects():
        if isinstance(other, types.FunctionType) and other.__name__ == "layer_norm":
            if other is not mine and other.__module__ != "torch.nn.functional":
                return other(x, weight, bias, eps)


@attack("makes the comparisons of torch and Python say yes")
def patches_comparisons(aim):
    torch.allclose = torch.equal = lambda *_, **__: True
    torch.testing.assert_close = lambda *_, **__: None
    builtins.max = lambda *_, **__: 0.0
    builtins.all = lambda *_: True


@attack("answers a tensor that becomes what it is compared with")
def late_tensor(aim, x, weight, bias, eps):
    class Late(Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            with getattr(torch, "_" + "C").DisableTorchFunctionSubclass():
                if len(args) > 1 and isinstance(args[1], Tensor):
                    args[0].copy_(args[1])
                return function(*args, **(kwargs or {}))

    return (0 * x + 7).as_subclass(Late)


@attack("spoils its input, so that the reference comes to the same wrong answer")
def spoils_input(aim, x, weight, bias, eps):
    x.zero_()
    return bias.expand(x.shape)


@attack("pretends that a person pressed Ctrl-C, so that nothing is graded")
def interrupts(aim, x, weight, bias, eps):
    raise KeyboardInterrupt


@attack("ends the process while it is asked")
def exits_later(aim, x, weight, bias, eps):
    os._exit(0)


@attack("answers all questions before they are asked, in the worker's own words")
def forges_frames(aim):
    from labkit.sandbox.inside import wire
    from labkit.sandbox.inside.call import Outcome
    from labkit.sandbox.inside.wire import encode_outcome

    frame = sys._getframe()
    while frame and "channel" not in frame.f_locals:
        frame = frame.f_back
    channel = frame.f_locals["channel"]
    wire.send(channel, encode_outcome(Outcome()))
    for _ in range(100):
        wire.send(channel, encode_outcome(Outcome(values=[torch.ones(2, 7, 32)])))


@attack("says that it needs no gradient and names no parameter")
def forges_outcomes(aim):
    from labkit.sandbox.inside import perform, worker

    honest = perform._perform

    def short(call, namespace, outcome):
        honest(call, namespace, outcome)
        outcome.values, outcome.failure, outcome.changed = [], None, []

    perform._perform, worker.perform = short, perform.perform


@attack("sends a pickle that runs where it is opened")
def pickles(aim, x, weight, bias, eps):
    class Bomb:
        def __reduce__(self):
            return open, (aim.mark, "w")

    return Bomb()


@attack("calls a forbidden function by another road")
def forbidden(aim, x, weight, bias, eps):
    norm = getattr(torch.nn.functional, "layer" + "_norm")
    return norm(x, weight.shape, weight, bias, eps)


@attack("takes back what the worker did to the forbidden functions")
def forbidden_freed(aim, x, weight, bias, eps):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "reset"):
                value.reset()
        frame = frame.f_back
    for held in gc.get_objects():
        if type(held) is tuple and len(held) == 3 and held[1:2] == ("layer_norm",):
            setattr(*held)
    return getattr(torch, "layer" + "_norm")(x, weight.shape, weight, bias, eps)


@attack("answers a text of megabytes")
def long_text(aim, x, weight, bias, eps):
    signal.alarm(0)
    raise RuntimeError("x" * (20 << 20))


@attack("raises an error whose own text never ends")
def endless_error(aim, x, weight, bias, eps):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)

    class Endless(Exception):
        def __str__(self):
            collections.deque(iter(int, 1), maxlen=0)

    raise Endless


@attack("searches memory for the text of answers that it is not to read")
def answers_as_text(aim):
    for held in gc.get_objects():
        values = held.values() if type(held) is dict else held if type(held) is list else ()
        for text in list(values):
            if isinstance(text, str) and "torch.rsqrt(mean_square" in text:
                return text
    frame = sys._getframe()
    while frame:
        for text in frame.f_locals.values():
            if isinstance(text, str) and "torch.rsqrt(mean_square" in text:
                return text
        frame = frame.f_back


@attack("searches memory for the inputs of other exercises")
def calls_of_others(aim):
    for held in gc.get_objects():
        if type(held).__name__ == "Call" and getattr(held, "symbol", "") == "RMSNorm":
            return "RMSNorm is called with this: " + repr(vars(held))[:100]
