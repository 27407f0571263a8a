"""Messages as bytes: every kind of value survives, and invalid bytes are refused."""

import json
from itertools import product

import pytest
import torch
from safetensors.torch import save

from labkit.sandbox.inside import wire
from labkit.sandbox.inside.call import Call, Failure, Given, New, Outcome
from labkit.sandbox.inside.perform import perform
from labkit.sandbox.inside.wire import Malformed, pack, unpack

X = torch.arange(6.0).view(2, 3)


def test_a_plain_value_comes_back_with_its_type():
    for value in (
        *(None, True, False, 0, -7, 2**60, 0.1, -0.0, "", "é \U0001f600 \0", torch.bfloat16),
        *([], (), {}, [1, [2.0, ("a", None)]], {"a": {"b": (1,)}, "tensor": 2}),
    ):
        back = unpack(pack(value))
        assert type(back) is type(value) and repr(back) == repr(value)


def test_a_tensor_comes_back_bit_for_bit():
    normal = torch.Generator().manual_seed(0)
    for dtype, shape in product(wire.DTYPES.values(), [(), (0,), (2, 3), (1, 0, 4)]):
        tensor = (torch.randn(shape, generator=normal) * 9).to(dtype)
        (back,) = unpack(pack([tensor]))
        assert torch.equal(back, tensor) and back.dtype == dtype and back.shape == tensor.shape
    for tensor in (X.T, X[:, ::2], X[:1].expand(4, 3), torch.nn.Parameter(X), X.t()[1:]):
        back = unpack(pack({"x": tensor}))["x"]
        assert torch.equal(back, tensor) and type(back) is torch.Tensor
        assert not back.requires_grad
        assert back.stride() == tensor.stride() or 0 in tensor.stride()
    assert unpack(pack(X.to(torch.complex64))) == {"a tensor of dtype": "torch.complex64"}


def test_nothing_else_is_packed():
    for value in (object(), lambda: 1, {1, 2}, b"bytes", 1j, X.numpy(), [[{3}]]):
        with pytest.raises(Malformed, match="cannot cross"):
            pack(value)


def test_a_call_comes_back_whole():
    call = Call(
        "Qwen3Attention", init={"config": New("Config", size=3)}, state={"w": X}, names=True,
        dtype=torch.float16, grad=("x",), by_position=True, summary="counts", x=X.T,
        objects=Given("training.training", seed=3),
    ).then("update", cache=Given("gqa.KVCache", size=2)).then(".length")  # fmt: skip
    back = wire.decode_call(wire.encode_call(call))
    assert wire.encode_call(back) == wire.encode_call(call)
    assert [method for method, _ in back.steps] == ["", "update", ".length"]
    assert back.steps[0][1]["x"].stride() == (1, 3)
    assert back.steps[1][1]["cache"].arguments == {"size": 2}


def test_gradients_of_chosen_inputs_alone():
    inputs = {"x": torch.arange(3.0), "scale": torch.ones(3)}
    for grad, names in ((True, {"x", "scale"}), (("x",), {"x"}), (False, set())):
        call = wire.decode_call(wire.encode_call(Call("f", grad=grad, **inputs)))
        outcome = perform(call, {"f": lambda x, scale: x * scale})
        assert set(outcome.grads) == names and outcome.failure is None


def test_an_input_named_like_an_option_goes_into_a_step():
    for name in ("init", "state", "dtype", "grad", "names", "objects"):
        with pytest.raises(ValueError, match=rf"{name} is an option of Call.*\.then\({name}="):
            Call("adamw_step", **{name: torch.ones(2)})
        assert Call("adamw_step").then(**{name: torch.ones(2)}).steps[0][1].keys() == {name}


def test_outcomes_come_back_whole():
    outcomes = [
        Outcome([X, 1], {"x": X}, {"w": [2, 3]}, ["x"], {"rate": X.sum()}),
        Outcome(failure=Failure("ValueError", "no", 3, ["Exception"], rank=0)),
        Outcome(["two  spaces\n"]),
    ]
    first, *others = [wire.decode_outcome(wire.encode_outcome(each)) for each in outcomes]
    assert others == outcomes[1:] and first.names == {"w": [2, 3]} and first.changed == ["x"]
    for mine, theirs in (
        (first.values[0], X),
        (first.grads["x"], X),
        (first.state["rate"], X.sum()),
    ):
        assert torch.equal(mine, theirs)


def test_what_learner_code_may_make_long_is_cut():
    long = Failure("k" * 999, "t" * 999, None, ["b" * 999] * 99)
    said = {"a " + "k" * 999: "v" * 9999}
    outcome = Outcome([said], names={"n" * 999: [1] * 99}, changed=["c" * 999], failure=long)
    back = wire.decode_outcome(wire.encode_outcome(outcome))
    assert back.failure == Failure("k" * 80, "t" * 300, None, ["b" * 80] * 8)
    assert back.names == {"n" * 80: [1] * 99} and back.changed == ["c" * 80]
    assert back.values == [{"a " + "k" * 78: "v" * 1000}]


def test_an_error_is_one_line_of_a_kind_that_has_a_name():
    forged = Failure("nothing. All checks passed", "no\n  ok    everything\r\n", 3)
    back = wire.decode_outcome(wire.encode_outcome(Outcome(failure=forged)))
    assert back.failure == Failure("Error", "no ok everything", 3)


FORGED = {
    "NaN": "[NaN]", "infinity": "[Infinity]", "minus infinity": "[-Infinity]",
    "a text of ten thousand values": json.dumps([[1] * 10_000]),
}  # fmt: skip


def refused(read, cases):
    """Check that every case raises Malformed."""
    for name, blob in cases.items():
        try:
            read(blob)
        except Malformed:
            continue
        pytest.fail(f"{name} is taken")


def test_what_no_worker_packs_does_not_come_in():
    fields = [["values", "HERE"], *([k, v] for k, v in FIELDS.items() if k != "values")]
    whole = json.dumps({"dict": fields}).replace("{}", '{"dict": []}')
    wire.decode_outcome(message(whole.replace('"HERE"', "[1.0]")))
    cases = {name: message(whole.replace('"HERE"', text)) for name, text in FORGED.items()}
    refused(wire.decode_outcome, cases)
    two = torch.ones(2)
    tensors = {"17 axes": torch.ones([1] * 17), "float8": two.to(torch.float8_e4m3fn),
               "int16": two.to(torch.int16)}  # fmt: skip
    cases = {name: message([{"tensor": "t0"}], t0=tensor) for name, tensor in tensors.items()}
    refused(lambda blob: unpack(blob, is_trusted=False), cases)
    blob = message({"tensor": "t0", "strides": [16, 5]}, t0=X)
    assert unpack(blob, is_trusted=False).is_contiguous() and not unpack(blob).is_contiguous()


def message(value, **tensors):
    """Return the bytes of a packed value that the Packer would never make."""
    return save(
        tensors, metadata={"value": value if isinstance(value, str) else json.dumps(value)}
    )


GOOD = message({"tensor": "t0", "strides": None}, t0=X)
BAD = {
    "nothing": b"",
    "no message": b"\x04\0\0\0\0\0\0\0oops",
    "half a message": GOOD[: len(GOOD) // 2],
    "one byte too few": GOOD[:-1],
    "one byte too many": GOOD + b"\0",
    "no value": save({"t0": X}),
    "no json": message("{"),
    "deep json": message("[" * 10_000 + "]" * 10_000),
    "deep values": message(json.loads("[" * 15 + "]" * 15)),
    "an unknown kind": message({"set": [1]}),
    "an unknown dtype": message({"dtype": "torch.qint8"}),
    "two kinds": message({"dict": [], "tuple": []}),
    "no kind": message({}),
    "a dict that is no list": message({"dict": {"a": 1}}),
    "a dict without values": message({"dict": [["a"]]}),
    "a tuple that is no list": message({"tuple": 3}),
    "a given without arguments": message({"given": ["gqa.KVCache"]}),
    "a new of a list": message({"new": ["A", [1]]}),
    "a tensor that is not there": message({"tensor": "t1"}),
    "a tensor with an odd name": message({"tensor": ["t0"]}, t0=X),
    "a tensor of no end": (lambda h: len(h).to_bytes(8, "little") + h + bytes(4))(
        b'{"__metadata__":{"value":"1"},'
        b'"t0":{"dtype":"F32","shape":[1099511627776,1048576],"data_offsets":[0,4]}}'
    ),
}


def test_bytes_that_are_no_value_are_refused():
    assert torch.equal(unpack(GOOD), X)
    refused(unpack, BAD)


def test_a_message_that_is_too_long_is_not_read(monkeypatch):
    monkeypatch.setattr(wire, "MAX_BYTES", len(GOOD) - 1)
    with pytest.raises(Malformed, match="bytes are more than"):
        unpack(GOOD)
    monkeypatch.undo()
    with pytest.raises(Malformed, match="too much text"):
        wire.decode_outcome(pack("x" * wire.MAX_HEADER))


FIELDS = {"values": [], "grads": {}, "names": {}, "changed": [], "state": {},
          "failure": None}  # fmt: skip


def test_what_is_no_outcome_is_refused(monkeypatch):
    monkeypatch.setattr(wire, "MAX_ITEMS", 8)
    assert wire.outcome_from(FIELDS) == Outcome()
    changes = [
        *({"values": {}}, {"grads": [X]}, {"grads": {"x": 1}}, {"state": {"x": "y"}}),
        *({"names": {"w": 3}}, {"names": {"w": ["3"]}}, {"names": {"w": [True]}}),
        *({"changed": "x"}, {"changed": [1]}, {"failure": "no"}, {"failure": ["a", "b"]}),
        *({"failure": ["E", "t", "3", [], 0]}, {"failure": ["E", 1, 3, [], 0]}),
        *({"failure": ["E", "t", 3, [1], 0]}, {"failure": ["E", "t", 3, [], ""]}),
        {"names": {str(n): [] for n in range(9)}},
    ]
    cases = {str(fields): pack(FIELDS | fields) for fields in changes}
    cases |= {"a list": pack([FIELDS]), "no field": pack({})}
    refused(wire.decode_outcome, cases)
