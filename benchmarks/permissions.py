"""How much longer a deployment to the local account takes where permissions are evaluated.

    python benchmarks/permissions.py [--runs 5] [--json]

Each run is an account of its own, in which the CDK CLI deploys the stack of the example `own-script` from an assembly that is
synthesized once, after a bootstrap that is not measured; with `--enforce-iam` and with `--no-enforce-iam` in turn. A ratio is
that of two runs of the same turn. Ends with 1 where the median ratio is above 1.03.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = str(Path(sys.prefix) / "bin" / "local-account")
LIMIT = 1.03


def deployment(assembly: Path, enforced: bool) -> float:
    """Seconds of `cdk deploy` of an assembly, in an account of its own."""
    option = "--enforce-iam" if enforced else "--no-enforce-iam"
    with tempfile.TemporaryDirectory() as state:
        seconds = Path(state) / "seconds"
        deploy = f"cdk deploy --app {assembly} --all --require-approval never"
        now = f"date +%s.%N >> {seconds}"
        commands = f"cdk bootstrap aws://123456789012/us-east-1 && {now} && {deploy} && {now}"
        subprocess.run(
            [PROGRAM, "--state", f"{state}/account", "--no-web", option, "run", "--", "sh", "-ec", commands],
            check=True,
            cwd=state,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        began, ended = map(float, seconds.read_text().split())
    return ended - began


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        app, assembly = Path(folder) / "app", Path(folder) / "assembly"
        shutil.copytree(ROOT / "examples" / "own-script", app)
        environment = {**os.environ, "CDK_DEFAULT_ACCOUNT": "123456789012", "CDK_DEFAULT_REGION": "us-east-1"}
        subprocess.run(["cdk", "synth", "--quiet", "--output", assembly], check=True, cwd=app, env=environment)
        deployment(assembly, True)  # the packages of the image, and bytecode
        turns = []
        for number in range(options.runs):
            first = number % 2 == 0
            pair = {enforced: deployment(assembly, enforced) for enforced in (first, not first)}
            turns.append((pair[True], pair[False]))
            if not options.json:
                print(f"turn {number + 1}: {pair[True]:.2f} s enforced, {pair[False]:.2f} s not", flush=True)
    ratios = [ours / other for ours, other in turns]
    found = {
        "enforced_seconds": statistics.median(ours for ours, _ in turns),
        "not_enforced_seconds": statistics.median(other for _, other in turns),
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
        "time": time.strftime("%Y-%m-%d"),
    }
    if options.json:
        print(json.dumps(found))
    else:
        print(
            f"median {found['enforced_seconds']:.2f} s and {found['not_enforced_seconds']:.2f} s; "
            f"ratio {found['ratio']:.3f} ({found['least_ratio']:.3f} to {found['most_ratio']:.3f})"
        )
    return 0 if statistics.median(ratios) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
