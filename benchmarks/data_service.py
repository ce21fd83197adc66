"""What moving batches costs: our data service beside AWS's example, tf.data service, Ray Data, a DataLoader and raw sockets.

    python benchmarks/data_service.py [--rounds 3] [--seconds 4] [--workers 2] [--streams 2] [--only NAME ...] [--json]
        [--aws-example FOLDER] [--aws-python PATH] [--ray-python PATH] [--tensorflow-python PATH]

One run on loopback, on the same cores, with the same batches for all: (a) transport alone, 8192, 1024 and 1 images [28, 28] of
float32 with labels (25.7 MB, 3.2 MB and 3 KB) that lie ready in memory; (b) the digits of training_code/heterogeneous, turned,
made noisy and blurred. Raw sockets send the dataset's own memory; "collating sockets" copy each batch once before, as any service
must that makes a batch of samples: the distance between the two is that copy. Both have --streams connections, where the service
has one; "one raw socket" is that. Each contestant runs once in each round in fresh processes (benchmarks/contestants), and in
every other round they run the other way about; a ratio is the median of the rounds' own. CPU seconds are those of all of a
contestant's processes, of both sides. No contestant trains, and each looks at a batch's corners only. What is not installed is
left out by name. Ends with 1 where a target is missed, or open since its peer is left out.

The accounts at the end say what a batch of ours costs: its bytes (a collating socket's CPU), itself (that of a batch of 3 KB),
and the rest, which is the changes between processes and what they leave of the caches. The bound is the share of raw sockets'
rate that the first two would have with no rest and no idle core.

Three rounds of what the service is compared with, about five minutes:

    python benchmarks/data_service.py --workloads ready --only ours "raw sockets" "one raw socket" "collating sockets"
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CONTESTANTS = Path(__file__).parent / "contestants"
IMAGE_BYTES, LABEL_BYTES = 28 * 28 * 4, 8
LONGEST = 180  # seconds a contestant may take beyond its window


@dataclass(frozen=True)
class Contestant:
    """One script of contestants/: the modules it needs, how to get them, and what it can run."""

    name: str
    script: str
    needs: tuple[str, ...] = ("torch",)
    install: str = "pip install torch"
    python: str = "python"  # the option that says which Python has them
    digits: bool = True
    streams: int | None = None  # in place of --streams


ALL = (
    Contestant("ours", "ours.py", ("torch",), "pip install torch"),
    Contestant(
        "AWS's example",
        "aws_example.py",
        ("torch", "grpc_tools"),
        "pip install torch grpcio-tools, and fetch the example for --aws-example",
        "aws_python",
    ),
    Contestant(
        "tf.data service",
        "tensorflow_service.py",
        ("tensorflow",),
        "pip install tensorflow-cpu",
        "tensorflow_python",
        digits=False,
    ),
    Contestant("Ray Data", "ray_data.py", ("ray", "torch"), "pip install 'ray[data]' torch", "ray_python"),
    Contestant("DataLoader", "dataloader.py"),
    Contestant("raw sockets", "sockets.py", ("numpy",), "pip install numpy", digits=False),
    Contestant("one raw socket", "sockets.py", ("numpy",), "pip install numpy", digits=False, streams=1),
    Contestant("collating sockets", "collating_sockets.py", ("numpy",), "pip install numpy", digits=False),
)


@dataclass(frozen=True)
class Workload:
    """``ready`` batches or ``digits``, of so many samples; ``of_raw_sockets`` is the share of their rate to be reached."""

    title: str
    kind: str
    batch_size: int
    of_raw_sockets: float = 0.0

    @property
    def gigabytes(self) -> float:
        """Of a batch, as it is read."""
        return self.batch_size * (IMAGE_BYTES + LABEL_BYTES) / 1e9


WORKLOADS = (
    Workload("transport alone, 25.7 MB", "ready", 8192, 0.80),
    Workload("transport alone, 3.2 MB", "ready", 1024, 0.75),
    Workload("transport alone, 3 KB", "ready", 1),
    Workload("the digits and their blur", "digits", 1024),
)


@dataclass(frozen=True)
class Target:
    """Ours is to be ``at least`` (or, of CPU, at most) so many times a peer's ``figure``."""

    peer: str
    figure: str
    bound: float
    at_least: bool = True

    def met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound


TRANSPORT = (
    Target("AWS's example", "rate", 4.0),
    Target("tf.data service", "rate", 1.0),
    Target("Ray Data", "rate", 1.0),
)
DIGITS = (Target("AWS's example", "rate", 1.3), Target("DataLoader", "cpu", 1.05, at_least=False))


def main() -> int:
    options = arguments()
    present, left_out = available(options)
    report: dict[str, Any] = {"machine": machine(), "options": vars(options), "left_out": left_out, "workloads": []}
    for workload in WORKLOADS:
        if options.workloads and workload.kind not in options.workloads:
            continue
        entered = [one for one in present if one.digits or workload.kind == "ready"]
        report["workloads"].append(summary(workload, compare(workload, entered, options)))
    report["accounts"] = accounts(report["workloads"])
    print(json.dumps(report, indent=2) if options.json else "\n".join(lines(report)))
    return 0 if all(target["met"] for found in report["workloads"] for target in found["targets"]) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a window, after the warm-up")
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds, and 40 batches, that are not counted")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare batches")
    parser.add_argument("--streams", type=int, default=2, help="connections of the peers that take a number")
    parser.add_argument("--workloads", nargs="+", choices=("ready", "digits"))
    parser.add_argument("--only", nargs="+", choices=[one.name for one in ALL], help="these contestants")
    parser.add_argument("--aws-example", metavar="FOLDER", help="pt.grpc.sagemaker/code of AWS's examples")
    for option in ("--python", "--aws-python", "--ray-python", "--tensorflow-python"):
        parser.add_argument(option, metavar="PATH", default=sys.executable)
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as tables")
    return parser.parse_args()


def available(options: argparse.Namespace) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants that can run, and those that cannot with what they lack."""
    present, left_out = [], {}
    for one in ALL:
        find = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {one.needs!r})))"
        lacks = subprocess.run([getattr(options, one.python), "-c", find], stderr=subprocess.DEVNULL).returncode
        if options.only and one.name not in options.only:
            left_out[one.name] = "not named by --only"
        elif lacks or (one.script == "aws_example.py" and not options.aws_example):
            left_out[one.name] = one.install
        else:
            present.append(one)
    return present, left_out


def compare(workload: Workload, entered: Sequence[Contestant], options: argparse.Namespace) -> list[dict[str, Any]]:
    """What each round found, by contestant."""
    rounds = []
    for number in range(options.rounds):
        ordered = entered if number % 2 == 0 else entered[::-1]
        rounds.append({one.name: run(one, workload, options) for one in ordered})
        print(f"{workload.title}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return rounds


def run(one: Contestant, workload: Workload, options: argparse.Namespace) -> dict[str, float]:
    """One contestant's rate and CPU seconds: per second and per GB of ready batches, or of digits samples."""
    streams = one.streams or options.streams
    asked = {"workload": workload.kind, "batch_size": workload.batch_size, "streams": streams}
    asked |= {name: getattr(options, name) for name in ("workers", "seconds", "warmup")}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "AWS_EXAMPLE": os.path.abspath(options.aws_example or "")}
    command = [getattr(options, one.python), str(CONTESTANTS / one.script), json.dumps(asked)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=options.seconds + options.warmup + LONGEST)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    # Libraries print as well, and Ray's processes may end with an error after all is measured.
    found = [line for line in output.splitlines() if line.startswith("{")]
    if not found:
        raise SystemExit(f"{one.name} ended with {process.returncode}:\n{errors[-4000:]}")
    measured = json.loads(found[-1])
    amount = measured["batches"] * (workload.gigabytes if workload.kind == "ready" else workload.batch_size)
    return {"rate": amount / measured["seconds"], "cpu": measured["cpu_seconds"] / amount}


def summary(workload: Workload, rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    results = {
        name: {figure: spread([found[name][figure] for found in rounds]) for figure in ("rate", "cpu")}
        for name in rounds[0]
    }
    wanted = DIGITS if workload.kind == "digits" else ()
    if workload.of_raw_sockets:
        sockets = ("raw sockets", "one raw socket", "collating sockets")
        wanted = (*TRANSPORT, *(Target(peer, "rate", workload.of_raw_sockets) for peer in sockets))
    targets = [{**asdict(target), **judged(target, rounds)} for target in wanted]
    return {**asdict(workload), "gigabytes": workload.gigabytes, "results": results, "targets": targets}


def judged(target: Target, rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    if not {"ours", target.peer} <= rounds[0].keys():
        return {"ratio": None, "met": False}
    ratios = [found["ours"][target.figure] / found[target.peer][target.figure] for found in rounds]
    return {"ratio": spread(ratios), "met": target.met(statistics.median(ratios))}


def accounts(workloads: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a large batch costs in CPU ms, and the share of raw sockets' rate that it could have; where all was measured."""
    found = {one["batch_size"]: one for one in workloads if one["kind"] == "ready"}
    measured = all({"ours", "raw sockets", "collating sockets"} <= one["results"].keys() for one in found.values())
    if not measured or 1 not in found:
        return []

    def cpu(batch_size: int, name: str) -> float:
        return float(1e3 * found[batch_size]["results"][name]["cpu"]["median"] * found[batch_size]["gigabytes"])

    accounts = []
    for size in sorted(found.keys() - {1}):
        whole, its_bytes, itself = cpu(size, "ours"), cpu(size, "collating sockets"), cpu(1, "ours")
        rest = whole - its_bytes - itself
        raw = found[size]["results"]["raw sockets"]["rate"]["median"] / found[size]["gigabytes"]
        bound = 1e3 * len(os.sched_getaffinity(0)) / (its_bytes + itself) / raw
        account = {"whole": whole, "bytes": its_bytes, "itself": itself, "rest": rest, "bound": bound}
        accounts.append({"title": found[size]["title"], **account})
    return accounts


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def lines(report: dict[str, Any]) -> list[str]:
    options = report["options"]
    text = [
        f"medians of {options['rounds']} rounds of {options['seconds']:g} s (least-most); {report['machine']}",
        f"{options['workers']} workers, {options['streams']} streams; the DataLoader has no stream: its batches stay in memory",
    ]
    for found in report["workloads"]:
        unit, scale, form = "GB/s", 1.0, ".2f"
        if found["batch_size"] == 1:
            unit, scale, form = "batches/s", 1 / found["gigabytes"], ",.0f"
        cpu_unit, cpu_scale = "CPU s/GB", 1.0
        if found["kind"] == "digits":
            unit, form, cpu_unit, cpu_scale = "samples/s", ",.0f", "CPU us/sample", 1e6
        text += ["", f"{found['title']}: batches of {found['batch_size']}"]
        text.append(f"  {'':<16}{unit:>26}{cpu_unit:>26}")
        for name, result in found["results"].items():
            rate, cpu = shown(result["rate"], scale, form), shown(result["cpu"], cpu_scale, ".2f")
            text.append(f"  {name:<16}{rate:>26}{cpu:>26}")
        text += [f"  {verdict(target)}" for target in found["targets"]]
    for one in report["accounts"]:
        costs = f"{one['whole']:.2f} CPU ms: {one['bytes']:.2f} its bytes, {one['itself']:.2f} itself, {one['rest']:.2f} the rest"
        bound = f"without the rest at most {one['bound']:.2f} of raw sockets"
        text += ["", f"{one['title']}: a batch takes {costs}; {bound}"]
    return text + [f"left out: {name} ({how})" for name, how in report["left_out"].items()]


def shown(value: dict[str, float], scale: float, form: str) -> str:
    median, least, most = (format(value[name] * scale, form) for name in ("median", "least", "most"))
    return f"{median} ({least}-{most})"


def verdict(target: dict[str, Any]) -> str:
    what = f"{'rate' if target['figure'] == 'rate' else 'CPU'} against {target['peer']}"
    bound = f"{'at least' if target['at_least'] else 'at most'} {target['bound']:g}"
    if target["ratio"] is None:
        return f"{what}: {bound}: open, it is left out"
    return f"{what}: {shown(target['ratio'], 1, '.2f')}, {bound}: {'met' if target['met'] else 'NOT MET'}"


def machine() -> str:
    with open("/proc/loadavg") as file:
        load = file.read().split()[0]
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load} at the start"


if __name__ == "__main__":
    sys.exit(main())
