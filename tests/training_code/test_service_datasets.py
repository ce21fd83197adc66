"""Datasets of other libraries, read through data hosts: each sample comes once, as the library itself yields it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import serving  # noqa: F401, which finds the training code
import torch
import webdataset
from hosts_and_trainers import Serve, addresses, serve
from serving import BatchReader
from torch.utils.data import IterableDataset, StackDataset, TensorDataset, get_worker_info
from torchdata.nodes import IterableWrapper, Loader, Mapper

__all__ = ["serve"]
COUNT = 100


def read(serve: Serve, dataset: Any, count: int = 2, **options: Any) -> list[Any]:
    """The batches of an epoch, from so many hosts."""
    servers = addresses(serve(count, **{"dataset": dataset, "batch_size": 8, "workers": 2} | options))
    with BatchReader(servers, job="job", epochs=1) as reader:
        return list(reader)


def test_a_webdataset_is_read_by_its_shards(serve: Serve, tmp_path: Path) -> None:
    for shard in range(4):
        with webdataset.TarWriter(str(tmp_path / f"{shard}.tar")) as tar:
            for number in range(shard, COUNT, 4):
                tar.write({"__key__": f"{number:04}", "json": {"label": number}, "pth": torch.full((3,), number)})
    files = [str(tmp_path / f"{shard}.tar") for shard in range(4)]
    dataset = webdataset.WebDataset(files, shardshuffle=False).decode().to_tuple("json", "pth")
    batches = read(serve, dataset, shards=4)
    labels = torch.cat([described["label"] for described, _ in batches])
    assert sorted(labels.tolist()) == list(range(COUNT))
    assert torch.cat([values for _, values in batches]).equal(labels[:, None].expand(-1, 3))


def squared(number: int) -> tuple[int, int]:
    return number, number**2


class Nodes(IterableDataset[tuple[int, int]]):
    """A graph of torchdata's nodes, one for each shard."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        about = get_worker_info()
        assert about is not None
        source = IterableWrapper(range(about.id, COUNT, about.num_workers))
        return iter(Loader(Mapper(source, squared)))


def test_a_graph_of_torchdatas_nodes_is_read_by_its_shards(serve: Serve) -> None:
    batches = read(serve, Nodes(), shards=3)
    pairs = sorted((number, square) for left, right in batches for number, square in zip(left, right, strict=True))
    assert [(int(number), int(square)) for number, square in pairs] == [squared(number) for number in range(COUNT)]


def test_a_hugging_face_dataset_on_disk_is_read_by_index(serve: Serve, tmp_path: Path) -> None:
    import datasets  # not with the file, which each of pytest's processes imports: it takes a second

    rows = {"number": list(range(COUNT)), "values": [[number, number**2] for number in range(COUNT)]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path)
    batches = read(serve, datasets.load_from_disk(tmp_path).with_format("torch"), count=1, workers=1)
    numbers = torch.cat([batch["number"] for batch in batches])
    assert sorted(numbers.tolist()) == list(range(COUNT))
    assert torch.cat([batch["values"] for batch in batches]).equal(torch.stack([numbers, numbers**2], dim=1))


def test_a_streamed_hugging_face_dataset_is_read_by_its_shards(serve: Serve) -> None:
    import datasets

    dataset = datasets.Dataset.from_dict({"number": list(range(COUNT))}).to_iterable_dataset(num_shards=4)
    batches = read(serve, dataset.with_format("torch"), count=1, workers=1, shards=2)
    assert sorted(torch.cat([batch["number"] for batch in batches]).tolist()) == list(range(COUNT))


def test_datasets_of_pytorchs_own_are_read_by_index(serve: Serve) -> None:
    dataset = StackDataset(number=TensorDataset(torch.arange(COUNT)), square=TensorDataset(torch.arange(COUNT) ** 2))
    batches = read(serve, dataset)
    numbers = torch.cat([batch["number"][0] for batch in batches])
    assert sorted(numbers.tolist()) == list(range(COUNT))
    assert torch.cat([batch["square"][0] for batch in batches]).equal(numbers**2)
