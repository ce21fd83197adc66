"""Datasets of other libraries, read through data hosts: each sample comes once, as the library itself yields it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serving  # noqa: F401, which finds the training code
import torch
import webdataset
from hosts_and_trainers import Serve, addresses, serve
from serving import BatchReader
from torch.utils.data import (
    IterableDataset,
    StackDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torchdata.nodes import IterableWrapper, Loader, Mapper

__all__ = ["serve"]
COUNT = 100


def read(serve: Serve, dataset: Any, count: int = 2, **options: Any) -> list[Any]:
    """The batches of an epoch, from so many hosts."""
    servers = addresses(serve(count, **{"dataset": dataset, "batch_size": 8, "workers": 2} | options))
    with BatchReader(servers, job="job", epochs=1) as reader:
        return list(reader)


@pytest.mark.soak  # another library of shards
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


@pytest.mark.soak  # another library of shards
def test_a_graph_of_torchdatas_nodes_is_read_by_its_shards(serve: Serve) -> None:
    batches = read(serve, Nodes(), shards=3)
    pairs = sorted((number, square) for left, right in batches for number, square in zip(left, right, strict=True))
    assert [(int(number), int(square)) for number, square in pairs] == [squared(number) for number in range(COUNT)]


@pytest.mark.soak  # the streamed one runs with each change
def test_a_hugging_face_dataset_on_disk_is_read_by_index(serve: Serve, tmp_path: Path) -> None:
    import datasets  # not with the file, which each of pytest's processes imports: it takes a second

    rows = {"number": list(range(COUNT)), "values": [[number, number**2] for number in range(COUNT)]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path)
    batches = read(serve, datasets.load_from_disk(tmp_path).with_format("torch"), count=1, workers=1)
    numbers = torch.cat([batch["number"] for batch in batches])
    assert sorted(numbers.tolist()) == list(range(COUNT))
    assert torch.cat([batch["values"] for batch in batches]).equal(torch.stack([numbers, numbers**2], dim=1))


@pytest.mark.soak  # its state is held with each change
def test_a_streamed_hugging_face_dataset_is_read_by_its_shards(serve: Serve) -> None:
    import datasets

    dataset = datasets.Dataset.from_dict({"number": list(range(COUNT))}).to_iterable_dataset(num_shards=4)
    batches = read(serve, dataset.with_format("torch"), count=1, workers=1, shards=2)
    assert sorted(torch.cat([batch["number"] for batch in batches]).tolist()) == list(range(COUNT))


@pytest.mark.soak  # those of other libraries run with each change
def test_datasets_of_pytorchs_own_are_read_by_index(serve: Serve) -> None:
    dataset = StackDataset(number=TensorDataset(torch.arange(COUNT)), square=TensorDataset(torch.arange(COUNT) ** 2))
    batches = read(serve, dataset)
    numbers = torch.cat([batch["number"][0] for batch in batches])
    assert sorted(numbers.tolist()) == list(range(COUNT))
    assert torch.cat([batch["square"][0] for batch in batches]).equal(numbers**2)


def numbers_of(batches: list[Any]) -> list[int]:
    return [number for [batch] in batches for number in batch.tolist()]


@pytest.mark.soak  # of all hosts and workers
def test_a_sampler_decides_what_an_epoch_reads_the_same_on_all_hosts_and_workers(serve: Serve) -> None:
    dataset = TensorDataset(torch.arange(COUNT))
    weights = [0.0] * 50 + [1.0] * 50
    for sampler in (
        WeightedRandomSampler(weights, 64),
        WeightedRandomSampler(weights, 64, generator=torch.Generator()),
        SubsetRandomSampler(range(50, 90)),
    ):
        read = []
        for hosts, workers in ((2, 2), (1, 1)):
            servers = addresses(serve(hosts, dataset=dataset, sampler=sampler, workers=workers))
            with BatchReader(servers, job="job") as reader:
                epochs = (0, 1) if hosts == 2 else (1, 0)
                found = {epoch: numbers_of(list(reader.epoch(epoch))) for epoch in epochs}
                read.append([found[0], found[1]])
                assert len(reader) == len(sampler) // 8
        assert read[0] == read[1]
        assert read[0][0] != read[0][1]
        assert all(len(epoch) == len(sampler) and min(epoch) >= 50 for epoch in read[0])


def test_a_sampler_is_divided_over_ranks(serve: Serve) -> None:
    servers = addresses(serve(dataset=TensorDataset(torch.arange(COUNT)), sampler=SubsetRandomSampler(range(30, 71))))
    found = []
    for rank in range(3):
        with BatchReader(servers, job="job", rank=rank, ranks=3, epochs=1) as reader:
            found += numbers_of(list(reader))
    assert sorted(found) == list(range(30, 71))


class Ranged(IterableDataset[int]):
    """A range that each worker's initialization narrows, as PyTorch's documentation has it."""

    def __init__(self) -> None:
        self.begin, self.end = 0, COUNT

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.begin, self.end))


def narrow(number: int) -> None:
    about = get_worker_info()
    assert about is not None
    assert about.id == number
    dataset, share = about.dataset, COUNT // about.num_workers
    dataset.begin, dataset.end = number * share, (number + 1) * share


class Noted(TensorDataset):
    """Samples with what the worker that makes them was initialized with."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return super().__getitem__(index)[0], self.noted


def note(number: int) -> None:
    about = get_worker_info()
    assert about is not None
    about.dataset.noted = 7 + number


@pytest.mark.soak  # long
def test_worker_init_fn_is_called_in_each_worker_and_before_each_pass_over_a_shard(serve: Serve) -> None:
    batches = read(serve, Ranged(), shards=4, worker_init_fn=narrow)
    assert sorted(torch.cat(batches).tolist()) == list(range(COUNT))
    noted = torch.cat([noted for _, noted in read(serve, Noted(torch.arange(COUNT)), worker_init_fn=note)])
    assert set(noted.tolist()) <= {7, 8}


def as_arrays(samples: list[Any]) -> Any:
    from transformers import BatchEncoding  # not with the file, which all workers of these tests import

    return BatchEncoding({"number": np.array([int(number) for [number] in samples]), "eye": torch.eye(2).to_sparse()})


@pytest.mark.soak  # test_batches.py has that of a batch of each kind
def test_what_a_collate_fn_returns_arrives_as_what_it_was(serve: Serve) -> None:
    from transformers import BatchEncoding

    batches = read(serve, TensorDataset(torch.arange(COUNT)), collate_fn=as_arrays)
    assert {type(batch) for batch in batches} == {BatchEncoding}
    assert sorted(np.concatenate([batch["number"] for batch in batches]).tolist()) == list(range(COUNT))
    assert all(batch["eye"].is_sparse for batch in batches)


@pytest.mark.soak
def test_a_streamed_hugging_face_dataset_continues_from_its_own_state(serve: Serve) -> None:
    import datasets

    dataset = datasets.Dataset.from_dict({"number": list(range(COUNT))}).to_iterable_dataset(num_shards=4)
    servers = addresses(serve(dataset=dataset.with_format("torch"), shards=2))
    with BatchReader(servers, job="job", epochs=1) as reader:
        batches = iter(reader)
        before = [number for _ in range(5) for number in next(batches)["number"].tolist()]
        state = json.loads(json.dumps(reader.state_dict()))
    assert all(one["state"] for one in state["shards"])
    servers = addresses(serve(dataset=dataset.with_format("torch"), shards=2))
    with BatchReader(servers, job="job", epochs=1) as reader:
        reader.load_state_dict(state)
        after = [number for batch in reader for number in batch["number"].tolist()]
    assert sorted(before + after) == list(range(COUNT))
