"""What a batch may hold, and that it arrives as it was: bytes to memory and back, and through a data host."""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import serving  # noqa: F401, which finds the training code
import torch
from data_service.batches import LARGE, Encoder, ReceiveMemory, collated, decode
from hosts_and_trainers import Serve, addresses, serve
from serving import BatchReader
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, default_collate

__all__ = ["serve"]
Pair = namedtuple("Pair", ["left", "right"])
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn,
]  # fmt: skip


def sample(number: int) -> dict[str, Any]:
    return {
        "tensor": torch.full((3, 5), number + 0.5),
        "scalar": torch.tensor(number),
        "array": np.full((2,), number, dtype=np.float32),
        "number": np.int16(number),
        "float": number / 2,
        "int": number,
        "bool": number % 2 == 0,
        "text": str(number),
        "nothing": torch.zeros(0, 4),
        "nested": (torch.ones(2, dtype=torch.bfloat16), [torch.ones(1), {"deep": torch.tensor(1j)}]),
        "pair": Pair(torch.tensor(1), torch.tensor(2)),
        7: torch.tensor([number]),
    }


class Everything(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return sample(index)


def moved(batch: Any) -> Any:
    """A batch into memory and out of it, with its description as text."""
    encoder = Encoder(batch)
    memory = torch.empty(encoder.bytes, dtype=torch.uint8)
    encoder.write(memory)
    return decode(encoder.description, memory)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_batch_is_what_default_collate_makes_of_its_samples() -> None:
    samples = [sample(number) for number in range(4)]
    assert same(moved(collated(samples)), default_collate(samples))


def test_a_batch_arrives_from_a_data_host_as_default_collate_makes_it(serve: Serve) -> None:
    with BatchReader(addresses(serve(dataset=Everything(), batch_size=6, shuffle=False)), job="job") as reader:
        [batch] = list(reader)
    assert same(batch, default_collate([sample(number) for number in range(6)]))


@dataclass(frozen=True)
class Scene:
    image: Tensor
    boxes: list[Tensor]


class Points:
    """A type of a user's own, which torch's pytree knows."""

    def __init__(self, values: Tensor, unit: str) -> None:
        self.values, self.unit = values, unit


@pytest.fixture
def registered() -> Iterator[None]:
    pytree.register_pytree_node(
        Points, lambda points: ([points.values], points.unit), lambda values, unit: Points(*values, unit)
    )
    yield
    pytree._deregister_pytree_node(Points)


def test_a_dataclass_arrives_as_one() -> None:
    found = moved({"scene": Scene(torch.ones(3, 4), [torch.zeros(2), torch.ones(1)])})["scene"]
    assert type(found) is Scene
    assert same(found.image, torch.ones(3, 4))
    assert same(found.boxes, [torch.zeros(2), torch.ones(1)])


def test_a_type_that_is_registered_with_pytree_arrives_as_one(registered: None) -> None:
    [found] = moved([Points(torch.arange(6).reshape(3, 2), "metre")])
    assert type(found) is Points
    assert (found.values.tolist(), found.unit) == ([[0, 1], [2, 3], [4, 5]], "metre")


def test_a_registered_type_whose_context_is_not_json_is_refused(registered: None) -> None:
    with pytest.raises(TypeError, match=r"the context of a registered type must be JSON, got <object .* at batch\[0\]"):
        Encoder([Points(torch.zeros(1), object())])  # type: ignore[arg-type]


def test_a_class_that_the_reader_has_not_imported_is_named() -> None:
    encoder = Encoder(Scene(torch.zeros(0), []))
    description = encoder.description.replace('"Scene"', '"Landscape"')
    with pytest.raises(ValueError, match=r"holds a .*\.Landscape, which the training process has not imported"):
        decode(description, torch.empty(0, dtype=torch.uint8))


def test_a_tensor_beyond_its_batch_is_refused() -> None:
    description = json.dumps({"tensor": ["float32", [4], 64]})
    with pytest.raises(ValueError, match="a tensor of 16 bytes at 64 is not in a batch of 64 bytes"):
        decode(description, torch.empty(64, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_any_dtype_travels(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    found = moved(tensor)
    assert found.dtype == dtype
    assert found.shape == (3, 4)
    assert found.view(torch.uint8).equal(tensor.view(torch.uint8))


def test_a_tensor_that_arrives_may_be_written_to_and_lies_at_a_multiple_of_16_bytes(serve: Serve) -> None:
    with BatchReader(addresses(serve()), job="job") as reader:
        for batch in reader:
            batch["image"] += 1
            assert batch["image"].data_ptr() % 16 == 0


def test_a_tensor_with_a_gradient_or_another_layout_travels_by_its_values() -> None:
    tensor = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    assert moved(tensor).equal(tensor)
    assert moved(collated([tensor, tensor])).equal(torch.stack([tensor, tensor]))


def test_samples_of_different_shapes_are_refused_as_by_default_collate() -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        collated([torch.zeros(2), torch.zeros(3)])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: {"image": [object()]}, r"got builtins.object at batch\['image'\]\[0\]"),
        (lambda: {("a", "b"): torch.zeros(1)}, r"keys must be text or numbers like 'image', got \('a', 'b'\)"),
        (
            lambda: [torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)],
            r"must be dense or sparse, got torch.jagged, torch.float32 at batch\[0\]",
        ),
        (lambda: {"objects": np.array([object()])}, r"got numpy.ndarray at batch\['objects'\]"),
    ],
)
def test_what_does_not_travel_is_named_with_its_place(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Encoder(made())


ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.arange(12).reshape(3, 4).T[::2],
    np.array(["a text", "another"]),
    np.array(["2026-01-01"], dtype="datetime64[D]"),
    np.array([1, 2], dtype=">i2"),
    np.zeros((0, 3)),
    np.array(7, dtype=np.uint16),
    np.float64(0.25),
    np.bool_(True),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{type(array).__name__} {array.dtype} {array.shape}")
def test_a_numpy_array_arrives_as_one(array: Any) -> None:
    """The finding "logs": a `collate_fn` that returns NumPy arrays was refused."""
    found = moved({"array": array, "after": torch.ones(2)})
    assert type(found["array"]) is type(array)
    assert (found["array"].dtype, found["array"].shape) == (array.dtype, array.shape)
    assert np.array_equal(found["array"], array)
    assert found["after"].tolist() == [1, 1]


SPARSE: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse_coo,
    "coo that is not coalesced": lambda _: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3)),
    "coo of rows": lambda _: torch.sparse_coo_tensor([[2, 0]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)),
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
    "bsr": lambda dense: dense.to_sparse_bsr((2, 2)),
    "bsc": lambda dense: dense.to_sparse_bsc((2, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_tensor_arrives_in_its_layout(name: str) -> None:
    """The finding "logs": a `collate_fn` that returns sparse tensors was refused."""
    tensor = SPARSE[name](torch.eye(4, 6, dtype=torch.float64))
    [found] = moved([tensor])
    assert (found.layout, found.dtype, found.shape) == (tensor.layout, tensor.dtype, tensor.shape)
    assert found.to_dense().equal(tensor.to_dense())
    if tensor.layout == torch.sparse_coo:
        assert found.is_coalesced() == tensor.is_coalesced()


class Described(OrderedDict[str, Any]):
    """A mapping that is made of other things than items, as a tokenizer's or a model's output may be."""

    def __init__(self, *, unit: str) -> None:
        super().__init__()
        self.unit = unit


def test_mappings_arrive_as_their_own_class() -> None:
    """The finding "logs": a `UserDict`, as every tokenizer's BatchEncoding, arrived as a plain dict."""
    from transformers import BatchEncoding  # not with the file, which each worker of its data host imports

    described = Described(unit="metre")
    described["length"] = torch.ones(2)
    batch = {
        "user": UserDict(ids=torch.arange(3)),
        "encoding": BatchEncoding({"input_ids": torch.arange(4).reshape(2, 2)}, n_sequences=1),
        "described": described,
        "ordered": OrderedDict(b=1, a=torch.zeros(1)),
    }
    found = moved(batch)
    assert {name: type(one) for name, one in found.items()} == {name: type(one) for name, one in batch.items()}
    assert all(same(dict(found[name]), dict(batch[name])) for name in batch)
    assert list(found["ordered"]) == ["b", "a"]
    assert moved(MappingProxyType({"a": 1})) == {"a": 1}
    assert found["described"].unit == "metre"
    assert found["encoding"].n_sequences == 1
    assert found["encoding"]["input_ids"].tolist() == found["encoding"].input_ids.tolist() == [[0, 1], [2, 3]]


def test_a_tokenizers_own_batch_arrives_as_a_batch_encoding() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BatchEncoding, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]")
    batch = tokenizer(["a b a", "b"], padding=True, return_tensors="pt")
    found = moved(batch)
    assert type(found) is BatchEncoding
    assert same(dict(found), dict(batch))
    assert found.to("cpu")["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_received_memory_is_used_again_only_when_the_last_tensor_in_it_is_gone() -> None:
    memory = ReceiveMemory()
    first = memory.empty(LARGE)
    address, view = first.data_ptr(), first[5:].numpy()
    del first
    other = memory.empty(LARGE)
    assert other.data_ptr() != address
    view[0] = 7
    del view
    assert memory.empty(LARGE).data_ptr() == address
