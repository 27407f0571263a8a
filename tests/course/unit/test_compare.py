"""Comparing outcomes: when they count as equal, and the first difference that is reported."""

import pytest
import torch

from labkit.checks.compare import (
    Difference,
    agree,
    assert_drawn,
    assert_same,
    close,
    compare,
    distance,
    same_distribution,
)
from labkit.checks.messages import error_text
from labkit.sandbox.inside.call import Call, Failure, Outcome
from labkit.sandbox.inside.perform import perform

NAN, INF = float("nan"), float("inf")


def difference(mine, theirs, **options):
    with pytest.raises(Difference) as caught:
        assert_same(mine, theirs, **options)
    return caught.value


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [
        (torch.float64, 1 + 1.4e-9, 1 + 1.6e-9),
        (torch.float32, 1 + 1.4e-5, 1 + 1.6e-5),
        (torch.float16, 1 + 2 * 2**-10, 1 + 3 * 2**-10),  # units in the last place
        (torch.bfloat16, 1 + 2 * 2**-7, 1 + 3 * 2**-7),
        (torch.int64, 1, 2),
        (torch.bool, True, False),
    ],
)
def test_a_dtype_has_its_tolerance(dtype, near, far):
    right = torch.tensor([1], dtype=dtype)
    assert close(torch.tensor([near], dtype=dtype), right).all()
    assert not close(torch.tensor([far], dtype=dtype), right).any()
    assert (
        close(torch.tensor([far], dtype=dtype), right, 2.0).all() == right.is_floating_point()
    )


def test_an_entry_is_forgiven_half_of_what_the_largest_is():
    right = torch.tensor([1000.0, 0.0, 0.0])
    assert close(right + torch.tensor([0, 0.0049, 0.0051]), right).tolist() == [1, 1, 0]
    half = right.bfloat16()
    assert close(half + torch.tensor([0, 0.48, 0.5]).bfloat16(), half).tolist() == [1, 1, 0]


def test_infinite_entries_and_those_that_are_no_number_must_be_the_same():
    right = torch.tensor([INF, -INF, NAN, NAN, 1.0, INF])
    mine = torch.tensor([INF, INF, NAN, 1.0, NAN, 1.0])
    assert close(mine, right).tolist() == [1, 0, 1, 0, 0, 0]


X = torch.ones(2, 3)
RIGHT = {
    "values": [X],
    "names": {"weight": [3]},
    "grads": {"x": X},
    "state": {"the learning rate of group 1": torch.tensor(0.5)},
}
# In reverse order: each fault is reported before those above it.
FAULTS = {
    "grad": {"grads": {"x": 2 * X}},
    "state": {"state": {"the learning rate of group 1": torch.tensor(0.25)}},
    "values": {"values": [2 * X]},
    "changed": {"changed": ["x"]},
    "nan": {"values": [NAN * X]},
    "dtype": {"values": [NAN * X.double()]},
    "shape": {"values": [NAN * X.double()[:1]]},
    "type": {"values": ["text"]},
    "names": {"names": {"gain": [3]}},
    "error": {"failure": Failure("ValueError", "no", 3)},
}


def test_of_several_faults_the_first_in_order_is_said():
    fields = dict(RIGHT)
    assert_same(Outcome(**fields), Outcome(**RIGHT))
    for kind, fault in FAULTS.items():
        fields |= fault
        assert difference(Outcome(**fields), Outcome(**RIGHT)).kind == kind


def test_what_is_right_before_the_fault_is_listed():
    found = difference(Outcome(**RIGHT | FAULTS["grad"]), Outcome(**RIGHT))
    right = ["shape (2, 3)", "dtype float32", "input left unchanged", "values"]
    assert found.right == right
    assert difference(Outcome([X[:1]]), Outcome([X])).right == []


LOOKS = {
    "it raised ValueError: no (line 3 of your cell)": {
        "failure": Failure("ValueError", "no", 3)
    },
    "stopped after 10 s": {"failure": Failure("TimeLimit", "stopped after 10 s")},
    "the call did not return": {"values": []},
    "there is no parameter weight; it has gain": {"names": {"gain": [3]}},
    "there is a parameter too many: bias (if it is a buffer: `persistent=False`)": {
        "names": {"weight": [3], "bias": [3]}
    },
    "parameter weight has shape (4,) instead of (3,)": {"names": {"weight": [4]}},
    "not None (is a return missing, or a print in its place?)": {"values": [None]},
    "a tensor was expected, not an object of type T": {"values": [{"an object of type": "T"}]},
    "the shape is (3, 2) instead of (2, 3)": {"values": [X.T]},
    "the dtype is float16 instead of float32": {"values": [X.half()]},
    "2 of 6 entries are inf, first at [0, 1]": {"values": [X / torch.tensor([1, 0, 1])]},
    "the call changed its input x in place": {"changed": ["x"]},
    "there is no the learning rate of group 1 of its old shape": {"state": {}},
    "no gradient reaches x": {"grads": {}},
    "no gradient reaches x: it is zero everywhere": {"grads": {"x": 0 * X}},
    "the gradient of x differs in 33% of its entries": {"grads": {"x": X + torch.eye(3)[:2]}},
    "there is a y too many": {"grads": {"x": X, "y": X}},
}


@pytest.mark.parametrize(("look", "fields"), LOOKS.items(), ids=LOOKS)
def test_a_fault_is_said_in_words(look, fields):
    assert difference(Outcome(**RIGHT | fields), Outcome(**RIGHT)).look.endswith(look)


R = torch.tensor([[0.1875, 1, 1]])  # 0.1875, 1875 and "mine" represent secret values
NUMBERS = {
    "values differ in all entries, first at [0, 0]: 1.1875 instead": (R + 1, R),
    "values differ in 33% of the entries": (R * torch.tensor([2, 1, 1]), R),
    "the value is 1.1875 instead of 0.1875": (R[0, 0] + 1, R[0, 0]),
    "the value is 0.18751 instead of 0.1875": (R[0, 0] + 1e-5, R[0, 0]),
    "the value is 0.1875 instead of 0.1874": (R[0, 0], R[0, 0] - 4e-6),  # until they differ
    "2.5 instead of 0.1875": (2.5, 0.1875),
    "7 instead of 1875": (7, 1875),
    "True instead of False": (True, False),
    "'yours' instead of 'mine'": ("yours", "mine"),
    "instead of int '1875'": (None, 1875),
    "value 2: 7 instead of 1875": ((X, 7), (X, 1875)),
    "loss: 2.5 instead of 0.1875": ({"loss": 2.5}, {"loss": 0.1875}),
}


@pytest.mark.parametrize(("look", "pair"), NUMBERS.items(), ids=NUMBERS)
def test_numbers_of_the_reference_are_said_and_not_in_secret(look, pair):
    mine, theirs = pair
    found = difference(Outcome([X, mine]), Outcome([X, theirs]))
    assert found.kind == "values" and found.look.startswith("step 2: ") and look in found.look
    assert found.redacted.startswith("step 2: ") and "instead" not in found.redacted
    assert not any(text in found.redacted for text in ("0.1875", "1875'", "mine", "False"))


def test_the_state_that_is_right_is_said_and_not_in_secret():
    found = difference(Outcome(**RIGHT | FAULTS["state"]), Outcome(**RIGHT))
    assert found.look == "after the call, the learning rate of group 1 is 0.25 instead of 0.5"
    assert found.redacted == "after the call, the learning rate of group 1 is 0.25"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([X, X], (X, X)),  # a list instead of a tuple
        (2, 2.0),
        (0.3, 0.3 + 1e-6),
        ({"b": X, "a": 1}, {"a": 1, "b": X}),
    ],
)
def test_a_structure_of_another_kind_can_be_the_same(mine, theirs):
    assert_same(Outcome([mine]), Outcome([theirs]))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [((X,), (X, X)), (X, (X, X)), ({"a": X}, {"b": X}), (1, True), (2.0, 2), ("1", 1)],
)
def test_or_is_not(mine, theirs):
    assert not agree(Outcome([mine]), Outcome([theirs]))


def test_an_error_that_is_expected_may_be_one_derived_from_it():
    expected = Outcome(failure=Failure("ValueError", "negative"))
    assert_same(Outcome(failure=Failure("Mine", "no", None, ["ValueError"])), expected)
    assert "nothing was raised" in difference(Outcome([X]), expected).look
    look = difference(Outcome(failure=Failure("KeyError", "k")), expected).look
    assert look == "ValueError was expected; it raised KeyError: k"


def test_a_tolerance_that_is_said_counts_for_values():
    assert_same(Outcome([X + 1e-3]), Outcome([X]), tolerance=1e-2)
    assert not agree(Outcome([X + 1e-3]), Outcome([X]))


def test_what_the_reference_does_too_is_no_fault():
    theirs = Outcome([X], changed=["x"], grads={"x": 0 * X})
    assert_same(theirs, theirs)


def test_gradients_are_compared_less_strictly_than_values():
    for dtype, near, far in ((torch.float32, 1e-4, 2e-4), (torch.bfloat16, 2**-6, 3 * 2**-7)):
        right = Outcome([X], grads={"x": X.to(dtype)})
        assert agree(Outcome([X], grads={"x": (X + near).to(dtype)}), right)
        assert not agree(Outcome([X], grads={"x": (X + far).to(dtype)}), right)


PROBS = torch.tensor([0.5, 0.25, 0.25, 0.0])


def drawn(*counts):
    return Outcome([torch.tensor(counts)])


def test_draws_may_be_any_that_fit_the_probabilities():
    for counts in [(500, 250, 250), (540, 230, 230, 0), (460, 290, 250)]:
        assert_drawn(drawn(*counts), drawn(500, 251, 249), PROBS)


@pytest.mark.parametrize(
    ("mine", "look", "secret"),
    [
        ([250, 500, 250], "token 1 was drawn 500 times in 1000, not about 250", "in 1000"),
        ([499, 250, 250, 1], "token 3 came out, which must not be drawn", ""),
        ([500, 250, 251], "1001 tokens of 0 to 2 came out", ""),
        ([500, 250, 250, 0, 0], "1000 tokens of 0 to 4 came out", ""),
        ([[1000]], "the shape is (1, 1) instead of (3,)", ""),
    ],
)
def test_draws_that_do_not_fit_are_said(mine, look, secret):
    with pytest.raises(Difference) as caught:
        assert_drawn(drawn(*mine), drawn(500, 251, 249), PROBS)
    assert caught.value.look == look and caught.value.redacted.endswith(secret)


@pytest.mark.parametrize(
    ("mine", "alike"),
    [
        ([500, 251, 249], True),
        ([500, 251, 249, 0], True),
        ([540, 230, 230], True),
        ([250, 500, 250], False),
        ([500, 250, 200, 50], False),
        ([50, 25, 25], False),
        ([[500, 250, 250]], False),
    ],
)
def test_two_counts_of_draws_may_come_from_the_same_probabilities(mine, alike):
    assert same_distribution(drawn(*mine), drawn(500, 250, 250)) is alike
    assert same_distribution(drawn(500, 250, 250), drawn(*mine)) is alike


def test_distance_is_the_mean_gap_of_all_that_is_compared():
    mine = Outcome([X + 0.5], grads={"x": X + 1}, state={"w": X})
    theirs = Outcome([X], grads={"x": X}, state={"w": X})
    assert distance(mine, theirs) == pytest.approx(0.5)
    assert distance(Outcome([torch.tensor([INF, NAN, 1.0])]), Outcome([X[0]])) == 0
    assert distance(Outcome(["a"]), Outcome(["a"])) == 0


class Linear(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(rows, 3))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"weight": (2, 3)}, "weight has shape (4, 3) instead of (2, 3)"),
        ({"kernel": (4, 3)}, "there is a weight and no kernel"),
        ({"weight": (4, 3), "bias": (4,)}, "there is no bias"),
        ({}, "there is a weight too many; if it is a buffer: `persistent=False`"),
    ],
)
def test_weights_that_do_not_load_are_told_in_a_few_words(state, said):
    weights = {name: torch.zeros(shape) for name, shape in state.items()}
    call = Call("Linear", init={"rows": 4}, state=weights)
    outcome = perform(call, {"Linear": Linear})
    assert error_text(outcome.failure) == f"the weights do not fit: {said}"


def test_values_of_a_pair_are_called_by_their_names():
    call = Call("f").returning("cos", "sin")
    for asked, name in ((call, "sin"), (Call("f"), "value 2")):
        with pytest.raises(Difference, match=rf"^{name}: values differ"):
            compare(asked, Outcome([[X, X + 1]]), Outcome([[X, X]]))


def test_a_call_says_what_an_error_must_mention_and_which_draws_fit():
    refused = [Outcome(failure=Failure("ValueError", text)) for text in ("no", "no to middle")]
    compare(Call("f").mentioning("middle"), refused[1], refused[0])
    with pytest.raises(Difference, match="does not contain 'middle'"):
        compare(Call("f").mentioning("middle"), refused[0], refused[0])
    call = Call("f").drawn_from(PROBS)
    compare(call, drawn(540, 230, 230), drawn(500, 251, 249))
    with pytest.raises(Difference, match="must not be drawn"):
        compare(call, drawn(499, 250, 250, 1), drawn(500, 251, 249))
