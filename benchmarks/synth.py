"""Measures the synthesis of training workflows against the same templates written with plain aws-cdk-lib.

    python benchmarks/synth.py [--runs 5] [--json]
    python benchmarks/synth.py --record       # writes the states of the plain app anew, once ours have changed

Each run is a process of its own, from the start of Python to its end, on the same machine in the same minutes, ours and theirs in
turn. Time is of the wall; memory is the peak of Python and of the Node process that jsii starts, added up. Both apps are checked
to write the same templates. Ends with 1 where ours misses one of its limits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
APPS = ("ours", "plain")
SIZES = (1, 100)
WORKFLOWS_IN_A_STACK = 50  # a stack holds 500 resources, a workflow is 6
MOST_TIME = 1.10
MOST_STEEP = 1.20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="how often each app is synthesized in each case (5)")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    parser.add_argument("--record", action="store_true", help="write the states of the plain app, as ours are now")
    parser.add_argument("--synthesize", nargs=3, metavar=("APP", "WORKFLOWS", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.synthesize:
        app, workflows, out = options.synthesize
        synthesize(app, int(workflows), out)
        return 0
    if options.record:
        record()
        return 0
    check_that_both_write_the_same()
    results = measure(options.runs)
    verdicts = [verdict(results, validator) for validator in (False, True)]
    if options.json:
        report = {"machine": machine(), "runs": options.runs, "results": results, "verdicts": verdicts}
        print(json.dumps(report, indent=2))
    else:
        show(results, verdicts, options.runs)
    return 0 if all(verdict["passed"] for verdict in verdicts) else 1


def synthesize(app_name: str, workflows: int, out: str) -> None:
    """One run; prints the peak of memory in MiB."""
    import aws_cdk as cdk

    if app_name == "ours":
        from synth_ours import Stack
    else:
        from synth_plain import Stack  # type: ignore[assignment]
    # As CDK recommends for apps that know their region: "aws" in ARNs, and not a reference.
    app = cdk.App(outdir=out, context={"@aws-cdk/core:enablePartitionLiterals": True})
    for first in range(0, workflows, WORKFLOWS_IN_A_STACK):
        Stack(app, f"Stack{first}", min(WORKFLOWS_IN_A_STACK, workflows - first))
    app.synth()
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    print(json.dumps({"peak_mib": sum(peak_mib(pid) for pid in ["self", *descendants(children)])}))


def descendants(pids: list[str]) -> list[str]:
    found = list(pids)
    for pid in pids:
        found += descendants(Path("/proc", pid, "task", pid, "children").read_text().split())
    return found


def peak_mib(pid: str) -> float:
    status = Path("/proc", pid, "status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def run(app: str, workflows: int, validator: bool, out: str) -> dict[str, float]:
    environment = {**os.environ, "CDK_VALIDATION": str(validator).lower(), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, str(HERE / "synth.py"), "--synthesize", app, str(workflows), out]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {"seconds": time.perf_counter() - start, **json.loads(done.stdout.splitlines()[-1])}


def measure(runs: int) -> list[dict[str, Any]]:
    results = []
    for validator, workflows in itertools.product((False, True), SIZES):
        measured: dict[str, list[dict[str, float]]] = {app: [] for app in APPS}
        for number in range(runs):
            progress(f"validator {'on' if validator else 'off'}, {workflows} workflows, run {number + 1} of {runs}")
            # In alternating order, so that a slower minute affects both.
            for app in APPS if number % 2 == 0 else reversed(APPS):
                with tempfile.TemporaryDirectory() as out:
                    measured[app].append(run(app, workflows, validator, out))
        results += [summary(app, workflows, validator, measured[app]) for app in APPS]
    progress("")
    return results


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def summary(app: str, workflows: int, validator: bool, runs: list[dict[str, float]]) -> dict[str, Any]:
    seconds = [run["seconds"] for run in runs]
    peaks = [run["peak_mib"] for run in runs]
    return {
        "app": app,
        "workflows": workflows,
        "validator": validator,
        "seconds": {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)},
        "peak_mib": {"median": statistics.median(peaks), "least": min(peaks), "most": max(peaks)},
    }


def verdict(results: list[dict[str, Any]], validator: bool) -> dict[str, Any]:
    """Ours over theirs: the time for each size, and the growth from the smallest to the largest."""

    def seconds(app: str, workflows: int) -> float:
        [result] = [
            result
            for result in results
            if (result["app"], result["workflows"], result["validator"]) == (app, workflows, validator)
        ]
        return float(result["seconds"]["median"])

    times = {str(size): seconds("ours", size) / seconds("plain", size) for size in SIZES}
    growth = [seconds(app, SIZES[-1]) - seconds(app, SIZES[0]) for app in APPS]
    steepness = growth[0] / growth[1]
    return {
        "validator": validator,
        "time_ratio": times,
        "growth_ratio": steepness,
        "passed": max(times.values()) <= MOST_TIME and steepness <= MOST_STEEP,
    }


def check_that_both_write_the_same() -> None:
    """Compare the templates of both apps: the resources, their properties, and the state machines' definitions."""
    with tempfile.TemporaryDirectory() as folder:
        templates = []
        for app in APPS:
            run(app, 2, False, f"{folder}/{app}")
            templates.append(canonical(Path(folder, app, "Stack0.template.json").read_text()))
    ours, plain = templates
    if ours != plain:
        differing = sorted(name for name in {*ours, *plain} if ours.get(name) != plain.get(name))
        raise SystemExit(f"the two apps write different resources, so nothing is compared: {', '.join(differing)}")


def record() -> None:
    """Write the definitions of our app's state machines, with places for what a template fills in and for its names."""
    with tempfile.TemporaryDirectory() as folder:
        run("ours", 1, False, folder)
        resources = json.loads(Path(folder, "Stack0.template.json").read_text())["Resources"]
    found = {}
    names = {"Training0": "workflow", "SageMakerTrainingJobsGuardStopper": "stopper"}
    for id, resource in resources.items():
        if resource["Type"] == "AWS::StepFunctions::StateMachine":
            name = next((name for part, name in names.items() if id.startswith(part)), "reconciler")
            text = resource["Properties"]["DefinitionString"]
            parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
            joined = "".join(part if isinstance(part, str) else f"<{_place(part)}>" for part in parts)
            found[name] = re.sub(r"Stack0-[0-9a-f]{8}-", "<MACHINES>", joined.replace("digits-0", "<PREFIX>"))
    HERE.joinpath("synth_states.json").write_text(json.dumps(found, indent=2) + "\n")


def _place(token: dict[str, Any]) -> str:
    if "Fn::GetAtt" in token:
        return "ROLE"
    return "SUFFIX" if token["Ref"] == "AWS::URLSuffix" else "BUCKET"


def canonical(template: str) -> dict[str, Any]:
    """The resources by logical id without its hash of the path, definitions parsed, and statements in one order."""
    resources: dict[str, Any] = {}
    for name, resource in json.loads(re.sub(r"\b([A-Z]\w*?)[0-9A-F]{8}\b", r"\1", template))["Resources"].items():
        properties = resource.get("Properties", {})
        if "DefinitionString" in properties:
            text = properties["DefinitionString"]
            parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
            joined = "".join(
                part if isinstance(part, str) else f"<{json.dumps(part)}>".replace('"', "'") for part in parts
            )
            properties["DefinitionString"] = json.loads(joined)
        if "PolicyDocument" in properties:
            statements = properties["PolicyDocument"]["Statement"]
            properties["PolicyDocument"]["Statement"] = sorted(json.dumps(part, sort_keys=True) for part in statements)
        if resource["Type"] != "AWS::CDK::Metadata":
            resources[name] = {"Type": resource["Type"], "Properties": properties}
    return resources


def show(results: list[dict[str, Any]], verdicts: list[dict[str, Any]], runs: int) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        box=SIMPLE, title=f"synthesizing training workflows, median of {runs} runs (least-most)", caption=machine()
    )
    for heading in ("validator", "workflows", "app", "seconds", "peak MiB"):
        table.add_column(heading, no_wrap=True)
    names = {"ours": "this library", "plain": "aws-cdk-lib"}
    for result in results:
        time_, memory = result["seconds"], result["peak_mib"]
        table.add_row(
            "on" if result["validator"] else "off",
            str(result["workflows"]),
            names[result["app"]],
            f"{time_['median']:.2f} ({time_['least']:.2f}-{time_['most']:.2f})",
            f"{memory['median']:.0f} ({memory['least']:.0f}-{memory['most']:.0f})",
            end_section=result["app"] == APPS[-1],
        )
    console.print(table)
    for verdict in verdicts:
        ratios = ", ".join(f"{ratio:.2f} of the time with {size}" for size, ratio in verdict["time_ratio"].items())
        console.print(
            f"validator {'on' if verdict['validator'] else 'off'}: this library takes {ratios}, and grows "
            f"{verdict['growth_ratio']:.2f} times as steeply; limits {MOST_TIME:.2f} and {MOST_STEEP:.2f}: "
            + ("[green]kept[/]" if verdict["passed"] else "[red]missed[/]"),
            highlight=False,
        )


def machine() -> str:
    import importlib.metadata

    node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    return (
        f"Python {platform.python_version()}, Node {node.removeprefix('v')}, "
        f"aws-cdk-lib {importlib.metadata.version('aws-cdk-lib')}, {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    sys.exit(main())
