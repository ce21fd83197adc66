"""The predictions of ``training-jobs plan``: AWS's article, and drawn configurations against simulated runs.

    python benchmarks/planning.py [--draw 20] [--seed SEED] [--docs docs] [--json]

Draws configurations and trainings, predicts their steps, and simulates the same runs with benchmarks/simulation.py, whose
batches take a fifth more or less than the mean. The seed is the clock's unless given, and printed. ``--docs`` writes plan.svg
and diagnose.svg there, and the tables of plan.md; ``--json`` prints their figures as one object. Ends with 1 where a step is
not within 5 % of its run, or another resource than the named one bounds it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planned_article import PRICES, ROWS
from simulation import Setup, Simulation

from training_jobs.planning.configurations import Market, plan
from training_jobs.planning.evidence import Evidence, HostUse
from training_jobs.planning.measurement import Measurement
from training_jobs.planning.picture import picture, utilization_picture
from training_jobs.planning.step_time import LOOK_AHEAD, RECEIVE, SERVE, Configuration, Machines, step_time

CLOSE = 0.05
LEAST_STEPS = 1000
CLEAR = 0.10  # of a step: where the two slowest resources are closer, either may bound it
BEGIN, END = "<!-- predicted by benchmarks/planning.py -->", "<!-- predicted -->"
TRAIN = ("ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.p3.8xlarge", "ml.g5.48xlarge")
DATA = ("ml.c5.2xlarge", "ml.c5.4xlarge", "ml.c5.9xlarge", "ml.c5.18xlarge")


@dataclass(frozen=True)
class Drawn:
    """A configuration and a training, with the predicted and the simulated step."""

    configuration: Configuration
    measurement: Measurement
    seconds: float
    bound: str
    simulated: float
    slowest: str
    clear: bool

    @property
    def deviation(self) -> float:
        return self.seconds / self.simulated - 1

    @property
    def met(self) -> bool:
        return abs(self.deviation) <= CLOSE and (self.bound == self.slowest or not self.clear)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--json", action="store_true", help="one object of the same figures")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    drawn = [draw(dice) for _ in range(options.draw)]
    found = article()
    lines = [*article_table(found), "", f"Seed {options.seed}.", "", *table(drawn)]
    if options.json:
        print(json.dumps({"article": found, "seed": options.seed, "drawn": [figures(one) for one in drawn]}, indent=2))
    else:
        print("\n".join(lines))
    if options.docs:
        write(options.docs, lines)
    return 0 if all(one.met for one in drawn) else 1


def draw(dice: random.Random) -> Drawn:
    configuration = Configuration(
        Machines(dice.choice(TRAIN), dice.choice((1, 1, 2, 4))), Machines(dice.choice(DATA), dice.randint(1, 8))
    )
    measurement = Measurement(
        batch_size=1,
        preprocess_seconds=10 ** dice.uniform(-1.5, 0.5),
        sample_bytes=10 ** dice.uniform(6, 7.8),
        step_seconds={configuration.train.facts.name: 10 ** dice.uniform(-2.5, -0.5)},
    )
    predicted = step_time(measurement, configuration, local_share=0.0)
    assert predicted is not None
    # The first half, in which what was made at the start is used up, is to be long against a batch's preparation, and against
    # the batches that a rank may hold, of which each of its workers has three at most.
    data = configuration.data
    assert data is not None
    held = min(
        look_ahead(configuration) / configuration.train.facts.processes / measurement.sample_bytes,
        3 * data.vcpus / configuration.ranks,
    )
    steps = max(LEAST_STEPS, math.ceil(40 * measurement.preprocess_seconds / predicted.seconds), math.ceil(5 * held))
    simulated, slowest = simulate(measurement, configuration, steps)
    second = sorted(predicted.limits.values())[-2]
    return Drawn(
        configuration,
        measurement,
        predicted.seconds,
        predicted.bound,
        simulated,
        slowest,
        second < predicted.seconds * (1 - CLEAR),
    )


def look_ahead(configuration: Configuration) -> int:
    """Bytes that a training machine holds ahead."""
    return int(min(LOOK_AHEAD, (configuration.train.facts.host_memory_gib or 0) * 2**30 / 4))


def simulate(measurement: Measurement, configuration: Configuration, steps: int) -> tuple[float, str]:
    """Seconds of a step, and what bounds it: the resource that shortens it most when there is ten times as much of it."""
    train, data = configuration.train, configuration.data
    assert data is not None
    facts = {
        "hosts": data.count,
        "ranks": configuration.ranks,
        "prepare": measurement.preprocess_seconds,
        "step": next(iter(measurement.step_seconds.values())),
        "gbit": data.network_gbps / data.count,
        "machine_gbit": train.network_gbps / train.count,
        "batch_bytes": int(measurement.sample_bytes),
        "workers": data.vcpus // data.count,
        "ranks_of_machine": train.facts.processes,
        "look_ahead": look_ahead(configuration),
        "serve": SERVE,
        "receive": RECEIVE,
        "steps": steps,
    }
    faster = {
        # More vCPUs, not faster ones, with which a batch would also be waited for less long.
        "data_cpu": {"workers": facts["workers"] * 10},
        "accelerator": {"step": facts["step"] / 10},
        "network": {"gbit": facts["gbit"] * 10, "machine_gbit": facts["machine_gbit"] * 10},
        "serving": {"serve": SERVE / 10},
        "receiving": {"receive": RECEIVE / 10},
        "look_ahead": {"look_ahead": facts["look_ahead"] * 10},
    }
    whole = seconds(facts)
    shortened = {name: seconds({**facts, **change}) for name, change in faster.items()}
    return whole, min(shortened, key=shortened.__getitem__)


def seconds(facts: dict[str, float]) -> float:
    setup = Setup(**facts)  # type: ignore[arg-type]
    return setup.ranks / Simulation(setup).run().rate


def article() -> list[dict[str, Any]]:
    """The rows of AWS's tables; shares are from 0 to 1."""
    rows = []
    for row in ROWS:
        alone = row.predicted(None)
        cases = (
            (None, row.alone_seconds, row.alone_cents, None),
            (row.data, row.published_seconds, row.published_cents, row.published_saved / 100),
        )
        for data, published, cents, saved in cases:
            found = row.predicted(data)
            rows.append(
                {
                    "table": row.name,
                    "machines": f"1 {row.train.instance_type}"
                    + (f" + {data.count} {data.instance_type}" if data else ""),
                    "predicted_seconds": found.step.seconds,
                    "published_seconds": published,
                    "off": found.step.seconds / published - 1,
                    "predicted_cents": found.step_dollars * 100,
                    "published_cents": cents,
                    "predicted_saved": None if data is None else 1 - found.step_dollars / alone.step_dollars,
                    "published_saved": saved,
                }
            )
    return rows


def article_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| table | machines | predicted step, ms | AWS, ms | off by | predicted cents a step | AWS, cents "
        "| predicted saved | AWS, saved |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for it in rows:
        predicted, published = (
            "" if share is None else f"{share:.0%}".replace("%", " %")
            for share in (it["predicted_saved"], it["published_saved"])
        )
        lines.append(
            f"| {it['table']} | {it['machines']} | {it['predicted_seconds'] * 1e3:.1f} | {it['published_seconds'] * 1e3:.0f} "
            f"| {it['off']:+.1%} | {it['predicted_cents']:.3f} | {it['published_cents']} | {predicted} | {published} |"
        )
    return lines


def figures(one: Drawn) -> dict[str, Any]:
    train, data, measured = one.configuration.train, one.configuration.data, one.measurement
    assert data is not None
    return {
        "trains": f"{train.count} {train.instance_type}",
        "prepares": f"{data.count} {data.instance_type}",
        "preprocess_seconds": measured.preprocess_seconds,
        "batch_bytes": measured.sample_bytes,
        "step_seconds": next(iter(measured.step_seconds.values())),
        "predicted_seconds": one.seconds,
        "simulated_seconds": one.simulated,
        "off": one.deviation,
        "predicted_bound": one.bound,
        "simulated_bound": one.slowest,
        "clear": one.clear,
    }


def table(drawn: list[Drawn]) -> list[str]:
    rows = [
        "| trains | prepares | vCPU s a batch | MB a batch | GPU step, s | predicted, s | simulated, s | off by "
        "| predicted bound | simulated bound |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in drawn:
        train, data, measured = one.configuration.train, one.configuration.data, one.measurement
        assert data is not None
        close = "" if one.clear else ", or near it"
        rows.append(
            f"| {train.count} {train.instance_type} | {data.count} {data.instance_type} | {measured.preprocess_seconds:.3g} "
            f"| {measured.sample_bytes / 1e6:.3g} | {next(iter(measured.step_seconds.values())):.3g} | {one.seconds:.4f} "
            f"| {one.simulated:.4f} | {one.deviation:+.1%} | {one.bound} | {one.slowest}{close} |"
        )
    return rows


def write(folder: Path, lines: list[str]) -> None:
    page = folder / "plan.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"]))
    row = ROWS[0]
    prices = {one.instance_type: PRICES[one.instance_type] for one in (row.train, row.data)}
    found = plan(row.measurement, Market(prices, spot=0.4), local_share=row.local_share)
    (folder / "plan.svg").write_text(picture(found))
    # The article's job with data hosts: GPUs "74%", "the CPU usage on all 3 instances are close to 80%" (its notebook).
    used = [HostUse("algo-1", "dnn_group", "ml.p4d.24xlarge", cpu=0.8, gpu=0.74)]
    used += [HostUse(f"algo-{number}", "data_group", "ml.c5.18xlarge", cpu=0.8) for number in (2, 3)]
    (folder / "diagnose.svg").write_text(utilization_picture(Evidence(used)))


if __name__ == "__main__":
    sys.exit(main())
