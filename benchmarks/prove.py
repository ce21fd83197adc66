"""Explores each construct that starts jobs, each feature of a workflow alone and each pair of them, and prints what that took.

    python benchmarks/prove.py [--faults 2] [--most-states 100000] [--json]

Two processes share the searches. Seconds and memory are of one search's process; a search that ends at its bound is not complete.
Ends with 1 where a property of a workflow does not hold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

# What is more or less than a workflow, of which docs/prove.md says what does not hold.
CONSTRUCTS = ("queue", "as_task", "pipeline", "sweep", "task", "guarded task")
TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("constructs", "shared", "examples", "local_account")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=2, help="how many faults each execution may meet (2)")
    parser.add_argument("--most-states", type=int, default=100_000, help="where each search ends (100,000)")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    options = parser.parse_args()
    from test_prove import FEATURES, PAIRS

    # The longest first.
    names = [("polled",), *PAIRS, *((feature,) for feature in FEATURES), (), *((name,) for name in CONSTRUCTS)]
    work = [(name, options.faults, options.most_states) for name in names]
    start, rows = time.perf_counter(), []
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        for number, row in enumerate(pool.imap_unordered(search, work), 1):
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(work)} searches", end="", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - start
    rows.sort(key=lambda row: names.index(tuple(row["features"])))
    if options.json:
        print(json.dumps({"faults": options.faults, "seconds": seconds, "searches": rows}, indent=2))
    else:
        show(rows, options.faults, seconds)
    own = [row for row in rows if row["features"][:1] not in [[name] for name in CONSTRUCTS]]
    return 1 if any(row["broken"] for row in own) else 0


def search(given: tuple[tuple[str, ...], int, int]) -> dict[str, Any]:
    """One search, in a process of its own."""
    from stacks import UserStack
    from test_prove import FEATURES, embedded, in_a_queue, with_task, with_workflow
    from test_prove_deployments import pipeline, sweep, task

    from training_jobs.prove.explorer import prove

    names, faults, most = given
    others = {
        "as_task": embedded,
        "task": with_task,
        "queue": in_a_queue,
        "guarded task": task,
        "pipeline": pipeline,
        "sweep": sweep,
    }
    if names and names[0] in others:
        stack = others[names[0]]()
    elif names == ("polled",):
        stack = with_workflow(integration="poll")
    else:
        stack = UserStack()
        stack.workflow(**{key: of for name in names for key, of in FEATURES[name](stack).items()})
    proofs = prove(stack.template(), faults=faults, most_states=most)
    above = names in (("as_task",), ("pipeline",), ("sweep",))
    [proof] = [one for one in proofs if not (above and one.machine.startswith(("Training", "Second")))]
    return {
        "features": list(names),
        "states": proof.states,
        "complete": proof.complete,
        "seconds": proof.seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "broken": [one.property for one in proof.violations],
    }


def show(rows: list[dict[str, Any]], faults: int, seconds: float) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, title=f"all executions with {faults} faults, {seconds:.0f} s on two processes")
    for heading in ("with", "states", "seconds", "MiB", "does not hold"):
        table.add_column(heading, no_wrap=heading != "does not hold")
    for row in rows:
        states = f"{row['states']:,}{'' if row['complete'] else ', its bound'}"
        name = "+".join(row["features"]) or "a workflow"
        table.add_row(name, states, f"{row['seconds']:.1f}", f"{row['peak_mib']:.0f}", ", ".join(row["broken"]) or "-")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
