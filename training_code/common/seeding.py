"""Random numbers of a step, such as dropout's: a function of the seed, of the samples read before it, and of the rank."""

from __future__ import annotations

import hashlib

import torch


def seed_step(seed: int, samples: int, rank: int, stage: int = 0) -> None:
    """Seed PyTorch's generators, to be called before each step, also of the first after a resume.

    So a step after a resume has the random numbers that it would have had, without a generator's state in the checkpoint.

    Args:
        rank: Of the data: ranks of one tensor-parallel group have the same, and ranks with other samples another.
        stage: Of a pipeline, whose layers would else have the random numbers of those of the first.
    """
    text = f"{seed}/{samples}/{rank}/{stage}".encode()
    torch.manual_seed(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1)
