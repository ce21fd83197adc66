"""An oracle of the training scripts that is not their code: what one process of plain PyTorch makes of what they saw.

    findings = run({"uneven": Case("data_parallel", {"points": 37}, [Run(2, {"epochs": 2, "batch-size": 4, ...})])}, folder)

A case is a script with its data, and its runs: each goes on from the checkpoints of the one before, which got SIGTERM in a
step, with other ranks or arguments where it has them. Each rank runs the script unchanged under oracle_record.py; then
oracle_plain.py trains the same, and compares losses, gradients, weights, rates and samples. No finding: they are equal.
The cases of a turn that have as many ranks share one set of processes, which takes a tenth of the time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import preloaded
from oracle_data import DATA

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parents[1] / "training_code"


@dataclasses.dataclass(frozen=True)
class Kind:
    script: str
    paths: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


KINDS = {
    "data_parallel": Kind("data_parallel/train.py", ("data_parallel",), ("points",)),
    "heterogeneous": Kind("heterogeneous/train.py", ("heterogeneous",), ("digits",)),
    "images": Kind("heterogeneous/images/train.py", ("heterogeneous/images",), ("train",)),
    "compiled": Kind("compiled/train.py", ("compiled",), ("text",)),
    "model_parallel": Kind("model_parallel/train.py", ("model_parallel",), ("text",)),
    "huggingface": Kind(
        "model_parallel/huggingface/train.py",
        ("model_parallel/huggingface", "model_parallel"),
        ("model", "tokens", "validation"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """Ranks that start the script with these arguments, of which one gets SIGTERM in the step ``stop``, if that is not 0."""

    ranks: int
    options: Mapping[str, Any]
    stop: int = 0
    watched: bool = True  # not where a compiler is


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str
    data: Mapping[str, Any]  # the sizes of the dataset
    runs: Sequence[Run]
    twin: str = ""  # a case that has the same inputs, for runs that are not watched


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of a case: where the script and the oracle differ, samples in the order in which they were read, and dropout's hashes."""

    found: list[str]
    read: Sequence[int] = ()
    dropped: Sequence[Sequence[str]] = ()  # of each step and rank


def run(cases: Mapping[str, Case], folder: Path, training_code: Path = TRAINING_CODE) -> dict[str, Outcome]:
    """Run cases, by name, in an empty folder."""
    for name, case in cases.items():
        DATA[case.kind](folder / name / "inputs", **case.data)
    failures = dict[str, str]()
    for turn in range(max(len(case.runs) for case in cases.values())):
        here = [name for name, case in cases.items() if len(case.runs) > turn and name not in failures]
        for ranks in sorted({cases[name].runs[turn].ranks for name in here}):
            of_these = [name for name in here if cases[name].runs[turn].ranks == ranks]
            failures |= record(cases, of_these, turn, folder, training_code)
    kinds = {case.kind for case in cases.values()}
    found = {name: Outcome([failure]) for name, failure in failures.items()}
    for kind in sorted(kinds):
        names = [name for name, case in cases.items() if case.kind == kind and name not in failures]
        paths = os.pathsep.join(str(training_code / path) for path in ("", *KINDS[kind].paths))
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
        files = [folder / name / "case.json" for name in names]
        for name, file in zip(names, files, strict=True):
            file.write_text(json.dumps(dataclasses.asdict(cases[name])))
        command, errors = [HERE / "oracle_plain.py", *files], folder / f"{kind}.txt"
        with preloaded.start(command, cwd=folder, env=environment, errors=errors) as program:
            printed = program.communicate()[0]
            assert program.wait() == 0, errors.read_text()
        found |= {name: Outcome(**json.loads(line)) for name, line in zip(names, printed.splitlines(), strict=True)}
    return found


def record(
    cases: Mapping[str, Case], names: Sequence[str], turn: int, folder: Path, training_code: Path
) -> dict[str, str]:
    """Run some cases' scripts in one set of ranks. Returns the failure of those that did not end."""
    runs, ranks = [], cases[names[0]].runs[turn].ranks
    stores = [preloaded.agents_store() if ranks > 1 else None for _ in names]  # ranks meet anew in each run
    for name, store in zip(names, stores, strict=True):
        kind, one, at = KINDS[cases[name].kind], cases[name].runs[turn], folder / name
        (its := at / f"run-{turn}").mkdir()
        channels = {f"SM_CHANNEL_{channel.upper()}": str(at / "inputs" / channel) for channel in kind.channels}
        runs.append(
            {
                "script": str(training_code / kind.script),
                "arguments": arguments(one.options),
                "environment": {
                    "SM_CHANNELS": json.dumps(kind.channels),
                    **channels,
                    **kind.environment,
                    **({"MASTER_PORT": str(store.port)} if store else {}),
                },
                "paths": [str(training_code / path) for path in (*kind.paths, "")],
                "cwd": str(at),
                "folder": str(its),
                "stop": one.stop,
                "watched": one.watched,
            }
        )
    file = folder / f"turn-{turn}-ranks-{ranks}.json"
    file.write_text(json.dumps(runs))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    environment |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    with preloaded.start(
        [HERE / "oracle_record.py", file], cwd=folder, env=environment, ranks=ranks, forkserver=True
    ) as program:
        printed = program.communicate()[0]
        if program.wait() == 0:
            return {}
    ended = [name for name in names if len(list((folder / name / f"run-{turn}").glob("*.pt"))) == ranks]
    return {name: f"end: of its set of ranks: {printed[-500:]}" for name in names if name not in ended[:-1]}


def refused(kind: str, data: Mapping[str, Any], options: Mapping[str, Any], folder: Path) -> str:
    """What a script prints that does not begin to train; without ``data``, by what it has of its own."""
    of, channels = KINDS[kind], dict[str, str]()
    if data:
        DATA[kind](folder / "inputs", **data)
        channels = {f"SM_CHANNEL_{name.upper()}": str(folder / "inputs" / name) for name in of.channels}
    paths = os.pathsep.join(str(TRAINING_CODE / path) for path in ("", *of.paths))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": paths,
        "SM_CHANNELS": json.dumps(of.channels if data else []),
    }
    command = [TRAINING_CODE / of.script, *arguments(options)]
    with preloaded.start(command, cwd=folder, env=environment | channels, forkserver=True) as program:
        printed = program.communicate()[0]
        assert program.wait() != 0, printed
    return printed


def arguments(options: Mapping[str, Any]) -> list[str]:
    given = {name: value for name, value in options.items() if value is not False}
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
