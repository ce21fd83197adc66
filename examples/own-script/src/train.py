"""A script as it is written for SageMaker's SDK: hyperparameters as arguments, places in SM_ variables. It fits y = a x + b."""

import argparse
import csv
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
parser.add_argument("--training", type=Path, default=os.environ.get("SM_CHANNEL_TRAINING", "data"))
arguments = parser.parse_args()

points = [(float(x), float(y)) for file in sorted(arguments.training.glob("*.csv")) for x, y in csv.reader(file.open())]
slope = offset = 0.0
for epoch in range(arguments.epochs):
    errors = [slope * x + offset - y for x, y in points]
    slope -= (
        arguments.learning_rate * 2 * sum(error * x for error, (x, _) in zip(errors, points, strict=True)) / len(points)
    )
    offset -= arguments.learning_rate * 2 * sum(errors) / len(points)
    loss = sum(error**2 for error in errors) / len(points)
    if epoch % 50 == 0 or epoch == arguments.epochs - 1:
        print(f"epoch {epoch} loss={loss:.6f}", flush=True)

arguments.model_dir.mkdir(parents=True, exist_ok=True)
(arguments.model_dir / "model.json").write_text(json.dumps({"slope": slope, "offset": offset}))
