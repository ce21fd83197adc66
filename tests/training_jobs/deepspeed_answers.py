"""What DeepSpeed and transformers' Trainer say of files, where deepspeed is installed: an answer for each case of standard input.

A case is a file's text, the number of processes, which is all that is told of them, and the given TrainingArguments; an answer is
an error's text, "" for none. `deepspeed_answers.json` has those of the cases of `test_deepspeed_files.py`:

    python tests/training_jobs/deepspeed_answers.py < CASES > tests/training_jobs/deepspeed_answers.json
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def answer(text: str, world: int, given: dict[str, Any]) -> str:
    from deepspeed.runtime import config as of_deepspeed
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    of_deepspeed.dist.get_rank = lambda *_: 0
    of_deepspeed.dist.get_world_size = lambda *_: world
    defaults = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    arguments = type("Arguments", (), {**defaults, "world_size": world, **given})()
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "file.json")
            file.write_text(text)
            trainer = HfTrainerDeepSpeedConfig(str(file))
        trainer.trainer_config_process(arguments)
        if not trainer.mismatches:
            of_deepspeed.DeepSpeedConfig(trainer.config)
        return "; ".join(trainer.mismatches)
    except Exception as error:  # each of its own kind
        return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answers = [answer(*case) for case in cases]
    print(json.dumps([[*case, found] for case, found in zip(cases, answers, strict=True)], indent=1))
