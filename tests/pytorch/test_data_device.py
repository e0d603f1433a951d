import collections
import types

import numpy
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from stoker.pytorch.data.loader import data_length, to_device

Pair = collections.namedtuple("Pair", ["x", "y"])


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, 2),
        numpy.zeros((4, 2)),
        [torch.zeros(4), torch.zeros(4, 3)],
        (numpy.zeros(4), "anything"),
        {"x": torch.zeros(4), "y": torch.zeros(4)},
        ({"x": torch.zeros(4)}, torch.zeros(1)),
        ["four", "words", "in", "a list"],
        types.MappingProxyType({"x": torch.zeros(4)}),
    ],
)
def test_data_length_is_that_of_the_first_tensor(batch):
    assert data_length(batch) == 4


@pytest.mark.parametrize("batch", [torch.tensor(3.0), object(), {}])
def test_data_length_says_so_when_there_is_none(batch):
    with pytest.raises(TypeError, match="length"):
        data_length(batch)


def test_to_device_goes_through_containers_and_keeps_their_types():
    tensor = torch.zeros(2)
    batch = {"pair": Pair(tensor, [tensor]), "many": (tensor, collections.OrderedDict(a=tensor)), "n": 3, "none": None}

    moved = to_device(batch, "meta")

    assert type(moved["pair"]) is Pair
    assert moved["pair"].x.device.type == moved["pair"].y[0].device.type == "meta"
    assert type(moved["many"]) is tuple
    assert type(moved["many"][1]) is collections.OrderedDict
    assert moved["many"][1]["a"].device.type == "meta"
    assert (moved["n"], moved["none"]) == (3, None)


def test_to_device_makes_tensors_of_numeric_arrays():
    moved = to_device([numpy.array([1.5]), numpy.array([True])], torch.device("cpu"))

    assert torch.equal(moved[0], torch.tensor([1.5], dtype=torch.float64))
    assert torch.equal(moved[1], torch.tensor([True]))


def test_to_device_lets_things_that_can_move_do_it_themselves():
    packed = pack_sequence([torch.zeros(3), torch.zeros(2)])

    moved = to_device(packed, "meta")

    assert isinstance(moved, PackedSequence)
    assert moved.data.device.type == "meta"
    assert moved.batch_sizes.device.type == "cpu"  # where torch needs it


def test_to_device_warns_once_for_each_type_it_leaves():
    warned: set[type] = set()

    with pytest.warns(UserWarning, match="left as it is") as caught:
        moved = to_device(["a", "b", {1, 2}, numpy.array(["c"])], "cpu", warned)
    to_device(["d"], "cpu", warned)  # a second warning would be an error here

    assert moved[:3] == ["a", "b", {1, 2}]
    assert [str(w.message).split(",")[0] for w in caught] == [
        "A batch holds a str",
        "A batch holds a set",
        "A batch holds a ndarray of <U1",
    ]
