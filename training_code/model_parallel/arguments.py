"""The arguments that both train.py of this kind have; their defaults are those of this folder's."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.compiler_cache import add_compiler
from common.schedule import add_schedule, positive
from degrees import add_degrees
from parallelize import Compilation


def parser_of(docstring: str) -> argparse.ArgumentParser:
    """A parser of the training's length, schedule, log, checkpoints, degrees and compiler."""
    parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
    add = parser.add_argument
    add("--steps", type=positive, default=100)
    add("--batch-size", type=positive, default=16, help="sequences of a step, over all ranks")
    add_schedule(parser, peak=3e-3)
    add("--weight-decay", type=float, help="of matrices, and none of vectors; by default AdamW's 0.01 of both")
    add("--clip", type=float, default=0.0, help="the largest norm of the gradient; 0: any")
    add("--gradient-sync", choices=("each", "last"), default="each", help="the microbatches that gradients are reduced "
        "with; until the last, each rank would hold those of whole parameters")  # fmt: skip
    add("--loss-chunk", type=int, default=1024, help="tokens whose logits are there at a time; 0: all of a microbatch")
    add("--seed", type=int, default=0, help="of the order of the data, initial weights, and dropout")
    add("--log-every", type=int, default=10, help="steps")
    add("--evaluate-every", type=int, default=0, help="steps; 0: never")
    add("--tensorboard", type=Path, help="a folder for event files, such as /opt/ml/output/tensorboard")
    add("--profile", type=int, default=0, help="the first of three steps, from 2 on, to trace into the output")
    add("--checkpoint-every", type=int, default=50, help="steps; 0: only at a stop and the end")
    add("--timeout", type=float, default=300.0, help="seconds after which a collective fails")
    # SageMaker kills a job two minutes after SIGTERM.
    add("--stop-check-every", type=int, default=5, help="steps between collective checks for SIGTERM")
    add("--heartbeat-timeout", type=float, default=20.0, help="seconds without a heartbeat after which a rank is lost")
    add_compiler(parser)
    add_degrees(parser)
    return parser


def compilation_of(options: argparse.Namespace) -> Compilation | None:
    inductor = options.compiler == "inductor"
    return Compilation(options.compiler_mode, options.compiler_dynamic) if inductor else None


def is_kept(step: int, options: argparse.Namespace) -> bool:
    """Whether a step's checkpoint is written for it is the last one, or one of each so many."""
    every = options.checkpoint_every
    return step == options.steps or bool(every and step % every == 0)
