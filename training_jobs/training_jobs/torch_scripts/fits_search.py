"""The searches of fits.py: the largest batch of a layout, and the layout on the fewest machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fits import Prediction

MOST_MACHINES = 128


def largest_batch(at: Callable[[int], Prediction], limit: float) -> tuple[int, Prediction]:
    """The most units of a batch whose peak, predicted by ``at``, is within ``limit`` bytes, or else one unit, and the prediction.

    Beyond some size activations grow by the same bytes with each sequence, so that the size is estimated from two others.
    """
    fitting, found = 1, at(1)
    if found.peak > limit:
        return 1, found
    beyond: tuple[int, Prediction] | None = None  # the smallest that is known not to fit
    while beyond is None or beyond[0] - fitting > 1:
        estimate = fitting * 2
        if beyond is not None:
            growth = (beyond[1].peak - found.peak) / (beyond[0] - fitting)
            estimate = min(max(fitting + 1, fitting + int((limit - found.peak) / growth)), beyond[0] - 1)
        tried = at(estimate)
        if tried.peak <= limit:
            fitting, found = estimate, tried
        else:
            beyond = (estimate, tried)
    return fitting, found


def smallest_layout(
    predict: Callable[[int, list[str]], Prediction], devices: int, limit: float
) -> tuple[int, list[str], Prediction]:
    """The layout on the fewest machines of so many ``devices`` whose peak, by ``predict`` on so many ranks, is within ``limit``.

    Returned are their number, its arguments and its prediction. What the model does not allow, such as a tensor degree that
    does not divide its heads, is left out. Raises ValueError where no layout is possible, or none on 128 machines fits.
    """
    machines = 1
    while machines <= MOST_MACHINES:
        state, refused = float("inf"), None  # bytes of a rank beside activations
        for layout in _layouts(devices):
            try:
                found = predict(machines * devices, layout)
            except ValueError as error:
                refused = error
                continue
            if found.peak <= limit:
                return machines, layout, found
            state = min(state, found.parameters + found.gradients + found.optimizer)
        if refused is not None and state == float("inf"):
            raise refused
        tried, machines = machines, 2 * machines
        while machines <= MOST_MACHINES and state * tried / machines > limit:  # which no layout there can fit
            machines *= 2
    raise ValueError(f"gpu_memory must hold a layout on {MOST_MACHINES} machines, got {limit / 2**30:g} GiB")


def _layouts(devices: int) -> Iterator[list[str]]:
    for tensor in [[], ["--tensor", str(devices)]] if devices > 1 else [[]]:
        yield tensor
        yield [*tensor, "--activation-checkpointing"]
