"""The pictures of docs/: a mesh of ranks, and what each rank of a pipeline does when.

    python benchmarks/pictures.py [docs]

Writes mesh.svg and pipeline.svg. The order of the work is that of PyTorch's schedules; its
duration is drawn as if a backward took twice a forward, and a message none.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
INK, PALE = "#333333", "#e8e8e8"
UNIT, ROW = 15, 22  # pixels of a forward, and of a rank's line
MICROBATCHES, RANKS = 8, 4
BACKWARD = 2  # forwards
SCHEDULES = (("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2))
MESH = {"pipeline": 2, "data_shard": 2, "tensor": 2}


class Work(NamedTuple):
    stage: int
    backward: bool
    microbatch: int


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    (folder / "mesh.svg").write_text(mesh())
    (folder / "pipeline.svg").write_text(pipeline())


def mesh() -> str:
    """Eight ranks in three axes: a box for each rank, with its place on each axis, stages in rows."""
    parts, width, height = [], 178, 64
    for rank, (stage, shard, piece) in enumerate(itertools.product(*map(range, MESH.values()))):
        x, y = 110 + shard * (2 * width + 30) + piece * width, 44 + stage * (height + 44)
        parts.append(box(x, y, width - 8, height, COLOURS[stage]))
        parts.append(text(x + width / 2 - 4, y + 26, f"rank {rank}", "white", bold=True))
        parts.append(text(x + width / 2 - 4, y + 46, f"shard {shard}, tensor piece {piece}", "white"))
    for stage in range(2):
        parts.append(text(52, 80 + stage * 108, f"stage {stage}", INK, bold=True))
    for shard in range(2):
        parts.append(text(110 + shard * 386 + width - 4, 28, f"data shard {shard}: its share of each batch", INK))
    for shard, piece in itertools.product(range(2), range(2)):
        x = 110 + shard * 386 + piece * width + width / 2 - 4
        parts.append(f'<path d="M{x} 110 v38" stroke="{INK}" marker-end="url(#tip)"/>')
    parts.append(text(496, 134, "activations", INK))
    parts.append(
        text(
            496,
            246,
            "a data shard's two ranks hold pieces of the same tensors; what one data shard holds, the other lacks",
            INK,
        )
    )
    title = "pipeline 2 x data_shard 2 x tensor 2: the eight ranks of a mesh"
    return svg(890, 262, title, parts)


def pipeline() -> str:
    parts, y, widest = [], 10, 0.0
    for schedule, stages_per_rank in SCHEDULES:
        spans = timed(actions(schedule))
        end = max(finish for _, _, _, finish in spans)
        busy = sum(finish - start for _, _, start, finish in spans) / (end * RANKS)
        y += 20
        parts.append(
            text(10, y, f"{schedule}: {100 * (1 - busy):.0f} % of the time idle", INK, bold=True, anchor="start")
        )
        y += 8
        scale = UNIT / stages_per_rank  # an interleaved stage has half of the layers
        for rank in range(RANKS):
            parts.append(text(10, y + rank * ROW + 15, f"rank {rank}", INK, anchor="start"))
            parts.append(box(60, y + rank * ROW, end * scale, ROW - 3, PALE))
        for rank, action, start, finish in spans:
            colour = COLOURS[action.backward + (0 if action.stage < RANKS else 2)]
            x, wide = 60 + start * scale, (finish - start) * scale
            parts.append(box(x, y + rank * ROW, wide - 1, ROW - 3, colour))
            parts.append(text(x + wide / 2, y + rank * ROW + 14, str(action.microbatch), "white", size=9))
        widest = max(widest, 60 + end * scale)
        y += RANKS * ROW + 8
    y += 16
    legend = (("forward", 0), ("backward", 1), ("forward of a second stage", 2), ("backward of a second stage", 3))
    for number, (name, colour) in enumerate(legend):
        parts.append(box(60 + number * 180, y - 10, 12, 12, COLOURS[colour]))
        parts.append(text(78 + number * 180, y, name, INK, anchor="start"))
    title = f"what each of {RANKS} ranks does with {MICROBATCHES} microbatches, by schedule"
    return svg(max(widest, 800) + 10, y + 14, title, parts)


def actions(schedule: str) -> list[list[Work]]:
    """Each rank's work in its order."""
    if schedule == "Interleaved1F1B":
        from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

        ordered = get_schedule_ops(schedule, RANKS, MICROBATCHES, 2)
        return [
            [
                Work(a.stage_index, a.computation_type.name == "FULL_BACKWARD", a.microbatch_index)
                for a in rank
                if computes(a)
            ]
            for rank in ordered
        ]
    # PyTorch's own picture of 1F1B counts wrongly on the last rank, so these two are written out.
    return [one_stage(rank, MICROBATCHES if schedule == "GPipe" else RANKS - rank) for rank in range(RANKS)]


def computes(action: Any) -> bool:
    return action is not None and action.computation_type.name in ("FORWARD", "FULL_BACKWARD")


def one_stage(rank: int, ahead: int) -> list[Work]:
    """So many forwards ahead, then a backward and a forward in turn, then the backwards that are left."""
    work = [Work(rank, False, number) for number in range(ahead)]
    for number in range(MICROBATCHES):
        work.append(Work(rank, True, number))
        if ahead + number < MICROBATCHES:
            work.append(Work(rank, False, ahead + number))
    return work


def timed(ranks: list[list[Work]]) -> list[tuple[int, Work, float, float]]:
    """Each piece of work with its rank, and when it starts and ends: when its rank is free and its input there."""
    stages = 1 + max(action.stage for rank in ranks for action in rank)
    done: dict[tuple[bool, int, int], float] = {}
    waiting, free = [list(rank) for rank in ranks], [0.0] * len(ranks)
    spans = []
    while any(waiting):
        before = len(spans)
        for rank, queue in enumerate(waiting):
            while queue and (start := ready(queue[0], stages, done)) is not None:
                action = queue.pop(0)
                start = max(start, free[rank])
                free[rank] = start + (BACKWARD if action.backward else 1)
                done[action.backward, action.stage, action.microbatch] = free[rank]
                spans.append((rank, action, start, free[rank]))
        assert len(spans) > before, f"no rank can go on: {[queue[:1] for queue in waiting]}"
    return spans


def ready(action: Work, stages: int, done: dict[tuple[bool, int, int], float]) -> float | None:
    """When the input of a piece of work is there; None while that is not known."""
    stage, backward, microbatch = action
    if backward:
        return done.get((False, stage, microbatch) if stage == stages - 1 else (True, stage + 1, microbatch))
    return 0.0 if stage == 0 else done.get((False, stage - 1, microbatch))


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" fill="{colour}"/>'


def text(
    x: float, y: float, what: str, colour: str, *, bold: bool = False, anchor: str = "middle", size: int = 12
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"{weight}>{what}</text>'


def svg(width: float, height: float, title: str, parts: list[str]) -> str:
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto"><path d="M0 0 L7 3 L0 6"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">'
    ground = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    return "\n".join([head, f"<title>{title}</title>", f"<defs>{tip}</defs>", ground, *parts, "</svg>", ""])


if __name__ == "__main__":
    main()
