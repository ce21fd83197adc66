"""The apps that ``training-jobs init`` writes around one training script: a first one, or one that is there."""

from __future__ import annotations

from pathlib import Path

from training_jobs.adopt.from_script import app_of, read_script
from training_jobs.cli.apps import FILES, check_new, write_files, write_spirals

_SCRIPT = '''"""Learns which of two spirals a point lies on. SageMaker's toolkit passes hyperparameters as arguments."""

import argparse
import csv
import os
from pathlib import Path

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    args = parser.parse_args()

    # The folders of the channel "training" and of the model; beside this script where SageMaker does not set them.
    data = Path(os.environ.get("SM_CHANNEL_TRAINING", Path(__file__).parents[1] / "data"))
    model_dir = Path(os.environ.get("SM_MODEL_DIR", "."))

    [table] = data.glob("*.csv")
    with table.open() as file:
        rows = [[float(row["x"]), float(row["y"]), float(row["spiral"])] for row in csv.DictReader(file)]
    points = torch.tensor(rows)
    x, y = points[:, :2], points[:, 2].long()

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    for epoch in range(args.epochs):
        optimizer.zero_grad()
        output = model(x)
        loss = torch.nn.functional.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        accuracy = (output.argmax(1) == y).float().mean().item()
        # One string: the toolkit logs what comes in several pieces as several lines.
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)
    torch.save(model.state_dict(), model_dir / "model.pt")


if __name__ == "__main__":
    main()
'''

_README = """# {title}

```console
training-jobs local up                                 # an AWS account on this machine, with this stack deployed
{data}training-jobs start --follow{example}    # train, and watch it
training-jobs download --to model
training-jobs local stop
```

`app.py` is the stack, `{script}` the training. Packages that AWS's container lacks stand in `requirements.txt` beside the
script. After an edit, `training-jobs local up` deploys it again. On AWS: `cdk deploy`, then `training-jobs --aws start`.
"""


# For each channel; BUCKET is an output of the stack.
_UPLOAD = "local-account run -- aws s3 cp --recursive DATA s3://BUCKET/data/{0}/    # of the channel {0}\n"


def write_first_script(directory: Path) -> list[Path]:
    """Write an app with a script to begin with, and its data.

    Args:
        directory: Where to, created if needed.

    Returns:
        The files that were written, sorted.

    Raises:
        FileExistsError: A file of the app is there already; nothing is written.
    """
    check_new(directory, ("app.py", "README.md", "src", "data", *FILES))
    script = directory / "src" / "train.py"
    write_files(script.parent, {"train.py": _SCRIPT})
    (directory / "data").mkdir()
    data = directory / "data" / "spirals.csv"
    write_spirals(data)
    texts = {
        "app.py": app_of(read_script(script), directory, data="data/spirals.csv"),
        "README.md": _README.format(
            title="A first script", data="", example=" --set epochs=200", script="src/train.py"
        ),
        **FILES,
    }
    return sorted([script, data, *write_files(directory, texts)])


def write_script_app(script: Path, directory: Path) -> list[Path]:
    """Write the app of a script that is there, and its ``requirements.txt`` where it has none and needs one.

    Args:
        script: The script.
        directory: Where to, created if needed.

    Returns:
        The files that were written, sorted.

    Raises:
        ValueError: It is not a file of Python.
        FileExistsError: A file of the app is there already; nothing is written.
    """
    found = read_script(script)
    check_new(directory, ("app.py", "cdk.json"))
    first = next((one for one in found.options if isinstance(one.default, int | float)), None)
    required = "".join(f" --set {one.field}=..." for one in found.options if one.required)
    example = required or ("" if first is None else f" --set {first.field}={first.default}")
    data = "".join(_UPLOAD.format(name) for name in found.channels)
    readme = _README.format(title=script.stem.capitalize(), data=data, example=example, script=script)
    texts = {"app.py": app_of(found, directory), "README.md": readme, **FILES}
    new = {name: text for name, text in texts.items() if not (directory / name).exists()}
    written = write_files(directory, new)
    if found.requirements:
        written += write_files(script.parent, {"requirements.txt": "".join(f"{one}\n" for one in found.requirements)})
    return sorted(written)
