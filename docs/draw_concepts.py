"""The pictures of docs/concepts.md: a job's hosts, a workflow's states, and the two accounts that a stack deploys to.

    python docs/draw_concepts.py

The states are those that the stack of examples/digits synthesizes.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

from draw_architecture import FILL, INK, LINE

DOCS = Path(__file__).resolve().parent
DIGITS = DOCS.parent / "examples" / "digits" / "app.py"
ERROR = "#b3541e"
# Column and row of each state, in pixels a box of STATE in a cell of STEP.
STATE, STEP = (130, 34), (190, 66)
PLACES = {
    "FirstAttempt": (1, 0),
    "Create": (1, 1),
    "WaitToRepeat": (2, 1),
    "Wait": (1, 2),
    "Repeat": (2, 2),
    "Spread": (3, 2),
    "SpreadLonger": (4, 2),
    "Describe": (1, 3),
    "NotDescribed": (0, 3),
    "IsRefused": (2, 3),
    "WaitToFind": (3, 3),
    "WaitLonger": (0, 4),
    "IsOver": (1, 4),
    "Find": (2, 4),
    "IsMissing": (3, 4),
    "FindModel": (1, 5),
    "Failed": (2, 5),
    "Stopped": (3, 5),
    "Stop": (4, 5),
    "WithoutModel": (0, 6),
    "HasModel": (1, 6),
    "Error": (4, 6),
    "Completed": (1, 7),
}


def main() -> None:
    (DOCS / "concepts-job.svg").write_text(job())
    (DOCS / "concepts-states.svg").write_text(states())
    (DOCS / "concepts-accounts.svg").write_text(accounts())


def job() -> str:
    return drawing(
        (780, 250),
        [
            box(20, 90, 130, 60, "S3", "channels"),
            frame(190, 20, 200, 210, "group data_group"),
            box(210, 60, 160, 60, "algo-1", "ml.c5.xlarge"),
            box(210, 140, 160, 60, "algo-2", "ml.c5.xlarge"),
            frame(430, 20, 180, 210, "group dnn_group"),
            box(450, 100, 140, 60, "algo-3", "ml.g5.xlarge"),
            box(650, 50, 110, 60, "S3", "model"),
            box(650, 140, 110, 60, "CloudWatch", "log, metrics"),
            arrow(150, 112, 210, 90),
            arrow(150, 128, 210, 170),
            arrow(370, 90, 450, 122),
            arrow(370, 170, 450, 138),
            arrow(590, 122, 650, 80),
            arrow(590, 138, 650, 170),
        ],
    )


def accounts() -> str:
    return drawing(
        (780, 210),
        [
            box(20, 75, 130, 60, "app.py", "the constructs"),
            box(200, 75, 150, 60, "template", "AWS's own JSON"),
            box(430, 20, 150, 60, "AWS", "cdk deploy"),
            box(430, 130, 150, 60, "the local account", "local up"),
            box(630, 20, 130, 60, "machines", "by the second"),
            box(630, 130, 130, 60, "processes", "on this machine"),
            arrow(150, 105, 200, 105),
            arrow(350, 97, 430, 50),
            arrow(350, 113, 430, 160),
            arrow(580, 50, 630, 50),
            arrow(580, 160, 630, 160),
        ],
    )


def states() -> str:
    """The state machine that creates the job, of those that the stack has."""
    template = runpy.run_path(str(DIGITS))["stack"].node.root.synth().get_stack_by_name("Digits").template
    machines = [one for one in template["Resources"].values() if one["Type"] == "AWS::StepFunctions::StateMachine"]
    [found] = [one["States"] for one in map(definition_of, machines) if "Create" in one["States"]]
    if found.keys() != PLACES.keys():
        raise SystemExit(f"PLACES must have the states of the workflow, differs in {found.keys() ^ PLACES.keys()}")
    parts = []
    for name, state in found.items():
        ways = [state.get("Next"), state.get("Default"), *(one["Next"] for one in state.get("Choices", []))]
        parts += [transition(name, to, LINE) for to in dict.fromkeys(ways) if to]
        parts += [transition(name, one["Next"], ERROR) for one in state.get("Catch", []) if one["Next"] not in ways]
    for name, state in found.items():
        x, y = corner(name)
        colour, radius = (ERROR, 17) if state["Type"] == "Fail" else (LINE, 17 if state.get("End") else 5)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{STATE[0]}" height="{STATE[1]}" rx="{radius}" fill="{FILL}" '
            f'stroke="{colour}"/>\n' + label(x + STATE[0] / 2, y + 22, name)
        )
    return drawing((5 * STEP[0], 8 * STEP[1]), parts)


def corner(name: str) -> tuple[int, int]:
    column, row = PLACES[name]
    return column * STEP[0] + (STEP[0] - STATE[0]) // 2, row * STEP[1] + 12


def transition(name: str, to: str, colour: str) -> str:
    """A line between two states: past the ones between in a column, upwards on the left and downwards on the right."""
    (x, y), (x_to, y_to) = corner(name), corner(to)
    (width, height), down = STATE, y_to > y
    if x == x_to and abs(y_to - y) > STEP[1]:
        side, out = (x + width, 45) if down else (x, -45)
        path = (
            f"M{side} {y + height / 2:g} C{side + out} {y + height / 2:g} {side + out} {y_to + 17} {side} {y_to + 17}"
        )
    elif y == y_to:
        path = f"M{x if x_to < x else x + width} {y + 17} L{x_to + width if x_to < x else x_to} {y + 17}"
    else:
        start, end = (y + height, y_to) if down else (y, y_to + height)
        path = f"M{x + width / 2:g} {start} L{x_to + width / 2:g} {end}"
    return f'<path d="{path}" fill="none" stroke="{colour}" marker-end="url(#tip)"/>'


def definition_of(machine: Any) -> dict[str, Any]:
    """A state machine's definition, with the references to other resources left out."""
    text = machine["Properties"]["DefinitionString"]
    parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
    return dict(json.loads("".join(part if isinstance(part, str) else "-" for part in parts)))


def drawing(size: tuple[float, float], parts: list[str]) -> str:
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" '
        f'font-size="14">\n<defs><marker id="tip" orient="auto" markerWidth="8" markerHeight="8" refX="7" refY="3">'
        f'<path d="M0 0 L8 3 L0 6 z" fill="{LINE}"/></marker></defs>\n'
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def box(x: float, y: float, width: float, height: float, name: str, more: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{FILL}" stroke="{LINE}"/>\n'
        + label(x + width / 2, y + 26, name)
        + label(x + width / 2, y + 45, more, small=True)
    )


def frame(x: float, y: float, width: float, height: float, name: str) -> str:
    outline = f'fill="none" stroke="{LINE}" stroke-dasharray="5 4"'
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {outline}/>\n' + label(
        x + width / 2, y + 24, name
    )


def arrow(x: float, y: float, x_to: float, y_to: float) -> str:
    return f'<path d="M{x:g} {y:g} L{x_to:g} {y_to:g}" stroke="{LINE}" marker-end="url(#tip)"/>'


def label(x: float, y: float, words: str, small: bool = False) -> str:
    size = ' font-size="12"' if small else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{INK}"{size}>{words}</text>\n'


if __name__ == "__main__":
    main()
