"""Make the channel ``tokens`` from texts: memory-mapped files of token numbers.

    python prepare_tokens.py --tokenizer FOLDER --output tokens/ TEXT [TEXT ...]

A TEXT is a .txt file, which is one document, or a .parquet file with a document in each row of the column ``text``, for which
pyarrow must be installed. FOLDER has a tokenizer.json of transformers; without it each byte is a token. Each document ends with
the tokenizer's end-of-sequence token, or 0. With ``--model`` a tokenizer with more tokens than that model is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

SHARD_TOKENS = 100_000_000


def documents(files: list[Path]) -> Iterator[str]:
    for file in files:
        if file.suffix == ".parquet":
            from pyarrow import parquet

            for rows in parquet.ParquetFile(file).iter_batches(columns=["text"]):
                yield from rows.column("text").to_pylist()
        else:
            yield file.read_text(errors="replace")


def tokenizer_of(folder: Path | None) -> tuple[Callable[[str], list[int]], int, int]:
    """The numbers of a text's tokens, the number that ends a document, and the size of the vocabulary."""
    if folder is None:
        return lambda text: list(text.encode()), 0, 256
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda text: tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id or 0, len(tokenizer)


def check(vocabulary: int, model: Path) -> None:
    from transformers import AutoConfig

    size = AutoConfig.from_pretrained(model).get_text_config().vocab_size
    if vocabulary > size:
        most = f"at most the model's tokens, vocab_size {size} in {model}"
        raise ValueError(f"tokenizer must have {most}, got {vocabulary}")


def write(texts: Iterator[str], tokenizer: Path | None, folder: Path, shard_tokens: int = SHARD_TOKENS) -> list[Path]:
    """Write ``tokens-00000.npy`` and so on, of at most ``shard_tokens`` tokens each; returns the files."""
    encode, end, vocabulary = tokenizer_of(tokenizer)
    kind = np.uint16 if vocabulary <= 2**16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    waiting, count = list[np.ndarray](), 0

    def flush(tokens: np.ndarray) -> None:
        files.append(folder / f"tokens-{len(files):05d}.npy")
        np.save(files[-1], tokens)

    for text in texts:
        waiting.append(np.array([*encode(text), end], kind))
        count += len(waiting[-1])
        while count >= shard_tokens:
            tokens = np.concatenate(waiting)
            flush(tokens[:shard_tokens])
            waiting, count = [tokens[shard_tokens:]], count - shard_tokens
    if count:
        flush(np.concatenate(waiting))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--model", type=Path, help="the folder of the model that is to be trained")
    parser.add_argument("--output", type=Path, default=Path("tokens"))
    options = parser.parse_args()
    if options.model:
        check(tokenizer_of(options.tokenizer)[2], options.model)
    for file in write(documents(options.texts), options.tokenizer, options.output):
        print(f"{file}: {len(np.load(file, mmap_mode='r'))} tokens")


if __name__ == "__main__":
    main()
