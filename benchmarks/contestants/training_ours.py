"""training_code/model_parallel/train.py: its model, its loop's step and its checks for SIGTERM."""

from __future__ import annotations

import sys
from itertools import count

from training import CLIP, LEARNING_RATE, TRAINING_CODE, Case, Training, fill, serve, weight

sys.path[:0] = [str(TRAINING_CODE), str(TRAINING_CODE / "model_parallel")]

import train  # noqa: E402
from common.job import Job  # noqa: E402
from common.process_group import freeze_objects, process_group  # noqa: E402
from watch import Watch  # noqa: E402


def main() -> None:
    case, job = Case.here(), Job.here()
    sizes = ("layers", "width", "heads", "hidden", "vocabulary", "context", "microbatches", "precision")
    arguments = [f"--{name}={getattr(case, name)}" for name in sizes]
    arguments += [f"--batch-size={case.sequences * case.ranks}", f"--clip={CLIP}", f"--learning-rate={LEARNING_RATE}"]
    if case.recompute:
        arguments.append("--activation-checkpointing")
    options = train.config(arguments)
    with Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch, process_group(job) as device:

        def build() -> Training:
            training = train.Training(options, train.degrees_of(options, job), device)
            fill(training.stage_modules[0], weight)
            tokens, targets = case.batch()
            freeze_objects()
            numbers = count(1)

            def step() -> float:
                stop_agreed = watch.start_stop_check(next(numbers))
                loss, _ = train.step(training, tokens, targets)
                stop_agreed()
                return float(loss)

            return Training(step, list(training.stage_modules.values()))

        serve(build)


if __name__ == "__main__":
    main()
