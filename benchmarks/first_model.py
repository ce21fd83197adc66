"""How long it takes to the first trained model: the README's commands, with pip and with uv.

    python benchmarks/first_model.py [--clone [--test]] [--runs 1] [--warm] [--json]

From an empty folder: builds the wheels once; each run then has a virtual environment, a home folder and caches of its own, and
types the commands of the README: install, `init script`, `local up`, `start --follow`. With `--clone` it is a clone of the last
commit, in which `make demo` is run twice, and with `--test` `make test` in another one. The index is that of the machine's pip.
pip and uv differ in the first command; the packages of the image are installed by uv in both. With `--warm` the caches are those
of the run before, as for a second app on the same machine. A ratio is that of two runs of the same turn.
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

from sagemaker_local_account.images import uv

ROOT = Path(__file__).parents[1]
INSTALLERS = ("pip", "uv")
UNSET = ("PYTHONPATH", "VIRTUAL_ENV", "SAGEMAKER_LOCAL_ACCOUNT_STATE", "SAGEMAKER_LOCAL_ACCOUNT_VENVS")


def build(folder: Path) -> list[str]:
    """Build the three wheels; what the first command installs."""
    for name in ("training_jobs", "local_account", "."):
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
        subprocess.run([*wheel, str(ROOT / name)], check=True)
    found = {wheel.name.partition("-")[0]: str(wheel) for wheel in folder.glob("*.whl")}
    constructs = found.pop("cdk_sagemaker_training")
    return [f"{constructs}[local]", *found.values()]


def surroundings(settings: dict[str, str], folder: Path, caches: Path) -> dict[str, str]:
    """The environment of a run: uv's, with this machine's settings of pip, and nothing of this clone, such as the CDK CLI."""
    others = [
        it for it in os.environ["PATH"].split(os.pathsep) if not it.startswith(sys.prefix) and "node_modules" not in it
    ]
    return {name: value for name, value in settings.items() if name not in UNSET} | {
        "PATH": os.pathsep.join([str(folder / "venv" / "bin"), *others]),
        "UV_CACHE_DIR": str(caches / "uv"),
        "PIP_CACHE_DIR": str(caches / "pip"),
        "npm_config_cache": str(caches / "npm"),
        "HOME": str(folder),
    }


def timed(commands: dict[str, list[str]], app: Path, environment: dict[str, str]) -> dict[str, float]:
    """Seconds of each command."""
    figures: dict[str, float] = {}
    for step, command in commands.items():
        began = time.perf_counter()
        done = subprocess.run(
            command, cwd=app, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL
        )
        figures[step] = time.perf_counter() - began
        print(f"{' '.join(command[:3])}: {figures[step]:.0f} s", file=sys.stderr, flush=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return figures


def first_model(installer: str, wheels: list[str], folder: Path, caches: Path) -> dict[str, float]:
    """Seconds of each step, and the size of the environment in MB."""
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    by_uv, settings = uv.command(home / "bin" / "python")
    environment = surroundings(settings, folder, caches)
    app = folder / "first"
    app.mkdir()
    try:
        figures = timed(
            {
                "install": [*(by_uv if installer == "uv" else ["pip", "install", "--quiet"]), *wheels],
                "init": ["training-jobs", "init", "script"],
                "local up": ["training-jobs", "local", "up"],
                "start --follow": ["training-jobs", "start", "--follow"],
            },
            app,
            environment,
        )
    finally:
        stop = [str(home / "bin" / "local-account"), "stop"]
        subprocess.run(stop, cwd=app, env=environment, capture_output=True, check=False)
    figures["in all"] = sum(figures.values())
    figures["environment, MB"] = sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) / 1e6
    return figures


def from_a_clone(installer: str, folder: Path, caches: Path, *, test: bool) -> dict[str, float]:
    """Seconds of ``make demo``, of the second one, and of ``make test`` in a clone of its own with the caches of these."""
    # make finds the settings of pip itself; those for uv would be those of the tests' own indexes, too.
    environment = surroundings(dict(os.environ), folder, caches)
    by = ["PIP=1"] if installer == "pip" else []
    for name in ("clone", "other"):
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / name)], check=True)
    figures = timed({"make demo": ["make", "demo", *by], "again": ["make", "demo", *by]}, folder / "clone", environment)
    if test:
        figures |= timed({"make test": ["make", "test", *by]}, folder / "other", environment)
    return figures


def main() -> int:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", action="store_true", help="make demo, and a second one, in a clone")
    parser.add_argument("--test", action="store_true", help="with --clone: make test in another clone, too")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--warm", action="store_true", help="after a run that fills the caches")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    turns: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheels = [] if options.clone else build(folder / "wheels")
        for turn in range(-options.warm, options.runs):
            caches = folder / "caches"
            found = {}
            for installer in INSTALLERS:
                if not options.warm:
                    shutil.rmtree(caches, ignore_errors=True)
                run = folder / f"{installer}{turn}"
                run.mkdir()
                found[installer] = (
                    from_a_clone(installer, run, caches, test=options.test)
                    if options.clone
                    else first_model(installer, wheels, run, caches)
                )
                shutil.rmtree(run)
            turns += [found] if turn >= 0 else []
    return report(turns, as_json=options.json)


def report(turns: list[dict[str, dict[str, float]]], *, as_json: bool) -> int:
    """Print the medians of all turns."""
    rows = {}
    for name in turns[0][INSTALLERS[0]]:
        of_pip, of_uv = ([turn[installer][name] for turn in turns] for installer in INSTALLERS)
        ratios = [one / other for one, other in zip(of_uv, of_pip, strict=True)]
        rows[name] = {
            "pip": round(statistics.median(of_pip), 1),
            "uv": round(statistics.median(of_uv), 1),
            "ratio": round(statistics.median(ratios), 3),
            "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        }
    if as_json:
        print(json.dumps({"runs": len(turns), **rows}))
    else:
        for name, row in rows.items():
            print(f"{name:16} pip {row['pip']:7.1f}  uv {row['uv']:7.1f}  uv/pip {row['ratio']:.2f} {row['spread']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
