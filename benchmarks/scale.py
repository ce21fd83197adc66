"""How the data service grows with hosts and ranks: a simulation of discrete events, beside real runs on this machine.

    python benchmarks/scale.py [--docs docs] [--serve 0.16] [--receive 0.20] [--real HOSTS RANKS] [--json]

The simulation has the service's own choices (home hosts, requests in flight, the budget of look-ahead) and the resources that
a batch passes: a worker for ``prepare`` seconds, give or take a fifth; the serving process, for as many seconds as it takes of
CPU for each GB; the data host's network; the training machine's network; the receiving thread of a rank. The CPU seconds are
those that benchmarks/data_service.py measures. Every rank takes a step at the same time as all others, in no time, so that
what limits the throughput is the service. A batch on the network occupies both ends for its size at their rate.

``--docs`` writes scale.svg there and the table of data-service.md. ``--real`` runs so many hosts and ranks on loopback, whose
workers sleep, and compares them with their simulation; it ends with 1 where the throughputs differ by more than 10 %. So it
does where as many hosts as ranks do not come within 10 % of the limit. ``--json`` prints the figures as one object.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from pictures import COLOURS, INK, svg, text

sys.path.insert(0, str(Path(__file__).parents[1] / "training_code"))

from data_service import BatchReader
from emulated.hosts import JOB, Host, started
from simulation import Setup, Simulation

CLOSE = 0.10
BEGIN, END = "<!-- simulated by benchmarks/scale.py -->", "<!-- simulated -->"
SIZES = ((1, 1), (4, 4), (16, 16), (64, 64), (8, 64), (64, 8))  # hosts and ranks
REAL_WARMUP, REAL_STEPS = 40, 60
PREPARE = {"network": 0.08, "workers": 1.6}  # seconds of a worker for a batch, by what is to be the limit at 25 Gb/s


# -- Real runs


@contextmanager
def reading(servers: list[str], ranks: int) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each rank, which prints one JSON line for each line that it reads."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", json.dumps([servers, rank, ranks])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.communicate("\n")


def read(servers: list[str], rank: int, ranks: int) -> None:
    """One rank of a real run: connect and read one batch, then ``REAL_STEPS`` batches after a line on standard input."""
    with BatchReader(servers, job=JOB, rank=rank, ranks=ranks, local_ranks=ranks) as reader:
        batches = reader.epoch(0)
        next(batches)
        ports = {int(server.rpartition(":")[2]) for server in servers}
        established = [one for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port in ports]
        print(len(established), flush=True)
        sys.stdin.readline()
        for _ in range(REAL_WARMUP):
            next(batches)
        began, most = time.monotonic(), 0
        for _ in range(REAL_STEPS):
            next(batches)
            most = max(most, reader.ready)
        print(json.dumps([REAL_STEPS / (time.monotonic() - began), most]), flush=True)
        sys.stdin.readline()


def real(hosts: int, ranks: int, workers: int, prepare: float, shape: tuple[int, ...]) -> dict[str, Any]:
    """Batches a second over all ranks, and the connections of each: of hosts and ranks on loopback, whose workers sleep."""
    with ExitStack() as stack:
        ports = [stack.enter_context(started(Host(workers, prepare, shape))) for _ in range(hosts)]
        processes = stack.enter_context(reading([f"127.0.0.1:{port}" for port in ports], ranks))
        connections = [int(lines(process)) for process in processes]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        found = [json.loads(lines(process)) for process in processes]
    return {
        "connections": connections,
        "rate": sum(rate for rate, _ in found),
        "ready": max(ready for _, ready in found),
    }


def lines(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


# -- The page


def table(options: argparse.Namespace) -> tuple[list[str], list[dict[str, Any]]]:
    rows = [
        "| hosts x ranks | Gb/s | limit | GB/s | of the limit | first batch, s | connections of a host, a machine "
        "| GB of a host, a machine |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = []
    for limited, prepare in PREPARE.items():
        for gbit in (25.0, 100.0):
            for hosts, ranks in SIZES:
                setup = Setup(hosts, ranks, prepare, gbit, serve=options.serve, receive=options.receive)
                result, limits = Simulation(setup).run(), setup.limits
                limit = min(limits, key=limits.__getitem__)
                part = result.rate / limits[limit]
                gigabytes = setup.batch_bytes / 1e9
                here = min(setup.ranks, setup.ranks_of_machine)
                one = {
                    "hosts": hosts,
                    "ranks": ranks,
                    "gbit": gbit,
                    "limited": limited,  # by design
                    "limit": limit,
                    "gigabytes_per_second": result.rate * gigabytes,
                    "part": part,
                    "first_batch_seconds": result.first,
                    "host_connections": result.host_connections,
                    "machine_connections": result.rank_connections,
                    "host_gigabytes": result.host_batches * gigabytes,
                    "machine_gigabytes": here * result.rank_batches * gigabytes,
                }
                found.append(one)
                rows.append(
                    f"| {hosts} x {ranks} | {gbit:g} | {limit} | {one['gigabytes_per_second']:.1f} | {part:.0%} "
                    f"| {result.first:.2f} | {result.host_connections}, {result.rank_connections} "
                    f"| {one['host_gigabytes']:.1f}, {one['machine_gigabytes']:.1f} |"
                )
    return rows, found


def draw(found: list[dict[str, Any]]) -> str:
    """Throughput by the number of hosts and ranks, where they are as many; both axes are logarithmic."""
    left, bottom, step, octave = 60.0, 290.0, 65.0, 24.0
    parts = [text(10, 20, "GB/s by hosts x ranks", INK, bold=True, anchor="start")]
    for number, (limited, gbit) in enumerate(sorted({(one["limited"], one["gbit"]) for one in found})):
        points = [
            (
                left + step * math.log2(one["hosts"]),
                bottom - octave * (2 + math.log2(one["gigabytes_per_second"])),
                one["gigabytes_per_second"],
            )
            for one in found
            if (one["limited"], one["gbit"], one["hosts"]) == (limited, gbit, one["ranks"])
        ]
        path, colour = " L".join(f"{x:g} {y:g}" for x, y, _ in points), COLOURS[number]
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [text(x, y - 8, f"{rate:.1f}", colour) for x, y, rate in points]
        parts.append(
            text(left + 7 * step, 60 + 22 * number, f"limited by {limited}, {gbit:g} Gb/s", colour, anchor="start")
        )
    parts += [text(left + step * math.log2(size), bottom + 20, f"{size} x {size}", INK) for size in (1, 4, 16, 64)]
    return svg(left + 10.5 * step, bottom + 36, "throughput of the data service by hosts and ranks, simulated", parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", type=float, default=Setup.serve, help="CPU seconds of a serving process for each GB")
    parser.add_argument("--receive", type=float, default=Setup.receive, help="CPU seconds of a rank for each GB")
    parser.add_argument("--docs", type=Path, help="the folder of the picture and the page")
    parser.add_argument("--real", type=int, nargs=2, metavar=("HOSTS", "RANKS"))
    parser.add_argument("--json", action="store_true", help="one object of the same figures")
    parser.add_argument("--rank", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        read(*options.rank)
        return 0
    if options.real:
        return compare(*options.real, as_json=options.json)
    rows, found = table(options)
    print(json.dumps({"rows": found}, indent=2) if options.json else "\n".join(rows))
    if options.docs:
        (options.docs / "scale.svg").write_text(draw(found))
        page = options.docs / "data-service.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text("\n".join([before + BEGIN, *rows, END + rest.partition(END)[2]]))
    return 0 if all(one["part"] >= 1 - CLOSE for one in found if one["hosts"] == one["ranks"]) else 1


def compare(
    hosts: int, ranks: int, workers: int = 2, prepare: float = 0.4, side: int = 64, *, as_json: bool = False
) -> int:
    """A real run beside its simulation, with workers as the limit: one machine's cores are all that there are."""
    found = real(hosts, ranks, workers, prepare, (side, side))
    setup = Setup(hosts, ranks, prepare, 1000.0, 4 * side**2, workers, ranks, serve=0.0, receive=0.0)
    simulated = Simulation(setup).run()
    off = found["rate"] / simulated.rate - 1
    if as_json:
        figures = {"hosts": hosts, "ranks": ranks, "batches_per_second": found["rate"], "simulated": simulated.rate}
        figures |= {
            "off": off,
            "connections": found["connections"],
            "simulated_connections": simulated.rank_connections,
        }
        print(json.dumps(figures, indent=2))
    else:
        print(f"{hosts} x {ranks}: {found['rate']:.1f} batches/s, simulated {simulated.rate:.1f} ({off:+.1%})")
        print(f"connections of ranks {found['connections']}, simulated {simulated.rank_connections} in all")
    return 0 if abs(off) <= CLOSE and sum(found["connections"]) == simulated.rank_connections else 1


if __name__ == "__main__":
    sys.exit(main())
