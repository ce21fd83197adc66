"""Tokenised texts: what prepare_tokens.py writes, and the sequences that a training reads of it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))
sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "model_parallel" / "huggingface"))

import prepare_tokens
from token_shards import TokenShards

CONTEXT = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, of 100 and 60 tokens, which are 12 and 7 sequences."""
    np.save(tmp_path / "tokens-00000.npy", np.arange(100, dtype=np.uint16))
    np.save(tmp_path / "tokens-00001.npy", np.arange(1000, 1060, dtype=np.uint16))
    return tmp_path


def test_an_epoch_has_each_sequence_once(folder: Path) -> None:
    corpus = TokenShards(folder, CONTEXT)
    tokens, _ = corpus.batch(0, len(corpus))
    starts = [*range(0, 96, CONTEXT), *range(1000, 1056, CONTEXT)]
    assert sorted(tokens[:, 0].tolist()) == starts


def test_targets_are_the_tokens_that_follow(folder: Path) -> None:
    tokens, targets = TokenShards(folder, CONTEXT).batch(3, 4)
    assert torch.equal(targets, tokens + 1)


def test_a_position_has_the_same_sequence_however_it_is_reached(folder: Path) -> None:
    whole, _ = TokenShards(folder, CONTEXT).batch(0, 50)
    resumed, _ = TokenShards(folder, CONTEXT).batch(33, 17)
    assert torch.equal(resumed, whole[33:])


def test_each_epoch_and_seed_has_another_order(folder: Path) -> None:
    corpus = TokenShards(folder, CONTEXT)
    first, second = (corpus.batch(epoch * len(corpus), len(corpus))[0] for epoch in range(2))
    other = TokenShards(folder, CONTEXT, seed=1).batch(0, len(corpus))[0]
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_files_are_mapped_and_not_read_into_memory(folder: Path) -> None:
    corpus = TokenShards(folder, CONTEXT)
    assert all(isinstance(shard, np.memmap) for shard in corpus._shards)


def test_a_token_that_the_model_has_not_is_refused_at_the_start_or_with_its_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TokenShards(folder, CONTEXT, vocabulary=1060, positions=CONTEXT).batch(0, 19)
    refused = (
        "the channel tokens must have tokens below vocab_size in config.json, 1059, got 1059 in tokens-00001.npy, which another "
        "tokenizer has made"
    )
    with pytest.raises(ValueError, match=refused):
        TokenShards(folder, CONTEXT, vocabulary=1059)
    monkeypatch.setattr("token_shards.FIRST_TOKENS", 50)
    np.save(folder / "tokens-00001.npy", np.arange(1000, 1061, dtype=np.uint16)[:58])
    corpus = TokenShards(folder, CONTEXT, vocabulary=1056)
    with pytest.raises(ValueError, match=r"got 1056 in tokens-00001\.npy"):
        corpus.batch(0, len(corpus))


def test_a_context_of_more_than_the_models_positions_is_refused(folder: Path) -> None:
    refused = "context must be at most the model's positions, 7 in config.json, got 8"
    with pytest.raises(ValueError, match=refused):
        TokenShards(folder, CONTEXT, positions=7)


def test_a_file_that_is_cut_or_of_another_kind_is_refused_by_name(folder: Path) -> None:
    cut = folder / "tokens-00001.npy"
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"the channel tokens must have whole files, got tokens-00001\.npy: "):
        TokenShards(folder, CONTEXT)
    np.save(cut, np.ones((30, 2)))
    with pytest.raises(ValueError, match=r"like uint16, got float64 of shape \(30, 2\) in tokens-00001\.npy"):
        TokenShards(folder, CONTEXT)


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "tokens"
    text.write_text("text")
    monkeypatch.setattr("sys.argv", ["", str(text), "--model", str(tmp_path), "--output", str(output)])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 255}))
    refused = f"tokenizer must have at most the model's tokens, vocab_size 255 in {tmp_path}, got 256"
    with pytest.raises(ValueError, match=re.escape(refused)):
        prepare_tokens.main()
    assert not output.exists()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 256}))
    prepare_tokens.main()
    assert list(output.iterdir())


def test_a_channel_without_a_sequence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must have files like tokens-00000\.npy with more than 8 tokens, got "):
        TokenShards(tmp_path, CONTEXT)


def test_texts_become_shards_of_at_most_a_size_without_losing_a_token(tmp_path: Path) -> None:
    texts = ["one", "two words", "x" * 30]
    files = prepare_tokens.write(iter(texts), None, tmp_path / "tokens", shard_tokens=20)
    shards = [np.load(file) for file in files]
    assert [len(shard) for shard in shards] == [20, 20, 5]
    assert bytes(np.concatenate(shards).astype(np.uint8)) == b"".join(text.encode() + b"\0" for text in texts)


def test_a_tokenizer_of_transformers_is_used(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<end>": 0, "a": 1, "b": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", unk_token="?").save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text("b a b")
    [file] = prepare_tokens.write(prepare_tokens.documents([tmp_path / "text.txt"]), tmp_path, tmp_path / "tokens")
    assert np.load(file).tolist() == [2, 1, 2, 0]


def test_each_row_of_a_parquet_file_is_a_document(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = {"text": ["one", "two words"], "source": ["a", "b"]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "texts.parquet", row_group_size=1)
    [file] = prepare_tokens.write(prepare_tokens.documents([tmp_path / "texts.parquet"]), None, tmp_path / "tokens")
    assert bytes(np.load(file).astype(np.uint8)) == b"one\0two words\0"
