"""The learning rate's schedule, and its scale by the batch over all ranks; of PyTorch's scripts and of TensorFlow's."""

from __future__ import annotations

import argparse
import math

RATE_RULES = {"linear": 1.0, "square-root": 0.5}  # the power of the batch's growth with which the rate grows


def add_schedule(parser: argparse.ArgumentParser, peak: float) -> None:
    """Add the arguments of ``scheduled_rate``, with which the rate is constant by default."""
    add = parser.add_argument
    add("--learning-rate", type=float, default=peak, help="the peak, which a resumed job may change")
    add("--warm-up", type=int, default=0, help="steps until the peak")
    add("--least-rate", type=float, default=1.0, help="the share of the peak that half a cosine ends at; 1: constant")
    add("--base-batch-size", type=positive, help="the batch over all ranks that the rate is for; by default any")
    add("--rate-rule", choices=tuple(RATE_RULES), default="linear", help="how the rate grows with the batch")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, like 256, got {text!r}")
    return int(text)


def true(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return text.lower() == "true"


def scheduled_rate(options: argparse.Namespace, step: float, steps: float, batch: int) -> float:
    """The learning rate in a step, from 1 on, by the arguments of ``add_schedule``, of ``batch`` samples over all ranks.

    The linear rule is that of https://arxiv.org/abs/1706.02677, the square root that of https://arxiv.org/abs/1404.5997.
    """
    growth = (batch / options.base_batch_size) ** RATE_RULES[options.rate_rule] if options.base_batch_size else 1.0
    return float(options.learning_rate * growth * warmup_cosine(step, steps, options.warm_up, options.least_rate))


def warmup_cosine(step: float, steps: float, warm_up: int, least: float = 0.1) -> float:
    """The share of the peak learning rate in a step, from 1 on: a linear rise, then half a cosine down to ``least``."""
    if step <= warm_up:
        return step / warm_up
    progress = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return least + (1 - least) * (1 + math.cos(math.pi * progress)) / 2
