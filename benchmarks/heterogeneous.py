"""AWS's article on heterogeneous clusters in miniature, and how throughput grows with data hosts: time emulated, data real.

    python benchmarks/heterogeneous.py [--rounds 3] [--seconds 20] [--docs docs] [--json]

Preprocessing and the training step take declared amounts of time on declared numbers of vCPUs, and sleep instead of working;
everything else is the data service of training_code/heterogeneous with batches of the article's real size: a server for each
data host in processes of its own, another on the training host, on loopback. It runs on the service directly, not as a job.

`--docs` writes heterogeneous.svg there and the tables of heterogeneous.md. Ends with 1 where a step is not within 5 % of its
ideal, or throughput not within 10 % of linear growth until the step is the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from emulated import picture
from emulated.article import ARTICLE, SETUPS, Setup
from emulated.hosts import Host, step_seconds

CLOSE, LINEAR = 0.05, 0.10
LEAST_COUNTED = 60  # batches, of which one more or less at the ends is little
ASYNCHRONOUS = 8  # batches of each worker until they no longer end together, as those do that began together
GROWTH_HOSTS = (1, 2, 4, 8, 16)
GROWTH_HOST = Host(workers=2, seconds=0.4, shape=(1024, 28, 28))  # 5 batches of 3.2 MB a second
GROWTH_STEP = 0.02  # the limit: 50 batches a second


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="that are counted of each, and at least 60 batches")
    parser.add_argument("--setups", type=int, nargs="*", choices=range(len(SETUPS)), default=range(len(SETUPS)))
    parser.add_argument(
        "--hosts", type=int, nargs="*", default=GROWTH_HOSTS, help="numbers of data hosts to grow through"
    )
    parser.add_argument("--docs", type=Path, help="the folder of the picture and the page")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as tables")
    options = parser.parse_args()
    setups = [SETUPS[number] for number in options.setups]
    played: dict[str, list[float]] = {setup.name: [] for setup in setups}
    grown: dict[int, list[float]] = {hosts: [] for hosts in options.hosts}
    for number in range(options.rounds):
        for setup in setups:
            played[setup.name].append(play(setup, options))
        for hosts in options.hosts:
            grown[hosts].append(1 / grow(hosts, options))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    report = {
        "machine": machine(),
        "rounds": options.rounds,
        "source": ARTICLE,
        "setups": [setup_result(setup, played[setup.name]) for setup in setups],
        "growth": [growth_result(hosts, rates) for hosts, rates in grown.items()],
    }
    print(json.dumps(report, indent=2) if options.json else "\n".join(tables(report)))
    if options.docs:
        write(options.docs, report)
    return 0 if all(result["met"] for result in [*report["setups"], *report["growth"]]) else 1


def play(setup: Setup, options: argparse.Namespace) -> float:
    """Seconds of a step."""
    training, *data = (
        Host(host.vcpus // setup.vcpus_of_worker, host.seconds / setup.vcpus_of_worker, setup.batch)
        for host in setup.hosts
    )
    return step_seconds(data, training, setup.step, ASYNCHRONOUS * setup.workers, counted(setup.ideal, options))


def grow(hosts: int, options: argparse.Namespace) -> float:
    # As well until what was made while the hosts were greeted is used up.
    warmup = 100 + ASYNCHRONOUS * hosts * GROWTH_HOST.workers
    seconds = max(GROWTH_STEP, GROWTH_HOST.seconds / (hosts * GROWTH_HOST.workers))
    return step_seconds([GROWTH_HOST] * hosts, None, GROWTH_STEP, warmup, counted(seconds, options))


def counted(seconds: float, options: argparse.Namespace) -> int:
    """How many batches to count, of which each takes so many seconds."""
    return max(LEAST_COUNTED, round(options.seconds / seconds))


def setup_result(setup: Setup, seconds: list[float]) -> dict[str, Any]:
    measured = spread(seconds)
    deviation = measured["median"] / setup.ideal - 1
    return {
        "name": setup.name,
        "step": setup.step,
        "ideal": setup.ideal,
        "measured": measured,
        "deviation": deviation,
        "met": abs(deviation) <= CLOSE,
        "published": setup.published,
        "cents": 100 * setup.dollars(measured["median"]),
        "published_cents": 100 * setup.dollars(setup.published),
    }


def growth_result(hosts: int, rates: list[float]) -> dict[str, Any]:
    measured = spread(rates)
    ideal = min(hosts * GROWTH_HOST.workers / GROWTH_HOST.seconds, 1 / GROWTH_STEP)
    deviation = measured["median"] / ideal - 1
    return {
        "hosts": hosts,
        "ideal": ideal,
        "measured": measured,
        "deviation": deviation,
        "met": abs(deviation) <= LINEAR,
    }


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def tables(report: dict[str, Any]) -> list[str]:
    """Markdown, for the terminal and the page alike."""
    lines = [
        f"Medians of {report['rounds']} rounds (least-most); {report['machine']}.",
        "",
        "| | ideal step, ms | here, ms | off by | AWS, ms | here, cents a step | AWS, cents a step |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in report["setups"]:
        lines.append(
            f"| {one['name']} | {1000 * one['ideal']:.1f} | {shown(one['measured'], 1000, '.1f')} | {one['deviation']:+.1%}"
            f"{'' if one['met'] else ' NOT MET'} | {1000 * one['published']:.0f} | {one['cents']:.3f} |"
            f" {one['published_cents']:.3f} |"
        )
    lines += ["", "| data hosts | ideal, batches/s | here, batches/s | off by |", "|---|---|---|---|"]
    for one in report["growth"]:
        lines.append(
            f"| {one['hosts']} | {one['ideal']:.1f} | {shown(one['measured'], 1, '.2f')} | {one['deviation']:+.1%}"
            f"{'' if one['met'] else ' NOT MET'} |"
        )
    return lines


def shown(value: dict[str, float], scale: float, form: str) -> str:
    median, least, most = (format(scale * value[name], form) for name in ("median", "least", "most"))
    return f"{median} ({least}-{most})"


def write(docs: Path, report: dict[str, Any]) -> None:
    """The picture, and what is between the two marks of the page."""
    (docs / "heterogeneous.svg").write_text(picture.draw(report))
    page = docs / "heterogeneous.md"
    before, _, rest = page.read_text().partition(picture.BEGIN)
    _, _, after = rest.partition(picture.END)
    page.write_text("\n".join([before + picture.BEGIN, *tables(report), picture.END + after]))


def machine() -> str:
    with open("/proc/loadavg") as file:
        load = file.read().split()[0]
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load} at the end"


if __name__ == "__main__":
    sys.exit(main())
