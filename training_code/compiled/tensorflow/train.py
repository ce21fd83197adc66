"""Train a byte-level language model on the text of Python's standard library, with TensorFlow and a step that XLA compiles.

On a laptop:          PYTHONPATH=training_code python training_code/compiled/tensorflow/train.py --compiler xla
On SageMaker:         a CompiledJob with TensorFlowXla, on one host or more (docs/compiled.md)

Every host starts this file once; TensorFlow's own strategies join the hosts, and the GPUs of each. XLA compiles the loss and its
gradients, which is nearly all of a step. The sums over hosts stay outside, so that the same step runs on any machine: on the CPU
TensorFlow 2.21 refuses them with "Collectives are not yet implemented for CPU devices when compiling with XLA".

It resumes from the last checkpoint, also on other hosts or with another batch; on a laptop, remove ``./output`` to start over.
SIGTERM ends it with a checkpoint, after the same step on all hosts.
"""

# ran: `compiled/tensorflow/train.py`, XLA | test_oracle_tensorflow (soak) | test_compiled | no | no

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from common.job import Job, use_the_jobs_network
from common.order import Order, share
from common.schedule import add_schedule, positive, scheduled_rate
from common.tensorflow_checkpoints import Checkpointer
from common.tensorflow_loss import IGNORED, token_loss
from common.tensorflow_strategy import Stop, check_same_step, strategy_of
from model import PADDING, network, sequences

# -- Config -----------------------------------------------------------------------------------------------------------

FIXED = ("seed", "sequence", "width", "layers", "heads")  # settings that a resumed job must have too


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, compiler = arguments.add_argument, os.environ.get("TRAINING_COMPILER", "none")
    add("--compiler", choices=("none", "xla"), default=compiler, help="of the step")
    add("--steps", type=positive, default=200)
    add("--batch-size", type=positive, default=16, help="of each device that trains")
    add("--sequence", type=positive, default=128, help="bytes that each sample is padded or cut to")
    add("--pad", choices=("sequence", "longest"), default="sequence", help="longest: a bad example")
    add("--width", type=positive, default=64)
    add("--layers", type=positive, default=2)
    add("--heads", type=positive, default=4)
    add_schedule(arguments, peak=1e-3)
    add("--seed", type=int, default=0)
    add("--preprocessing-workers", type=positive, default=2, help="threads of each host that read and pad")
    add("--log-every", type=positive, default=10, help="steps; each line waits for the device")
    add("--checkpoint-every", type=positive, default=50, help="steps")
    # SageMaker kills a job two minutes after SIGTERM.
    add("--stop-check-every", type=positive, default=5, help="steps between collective checks for SIGTERM")
    add("--on-recompile", choices=("fail", "warn"), default="fail")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches(
    strategy: tf.distribute.Strategy, text: np.ndarray, order: Order, samples: int, options: argparse.Namespace
) -> Iterator[tf.Tensor | tf.distribute.DistributedValues]:
    """For each step on from ``samples``, bytes as int32 [batch_size, sequence + 1] for each device of this host."""

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        devices, rows = strategy.num_replicas_in_sync, tf.constant(text)
        here, hosts = context.input_pipeline_id, context.num_input_pipelines

        def numbers() -> Iterator[np.ndarray]:
            for step in order.steps_from(samples):
                for device in range(here * devices // hosts, (here + 1) * devices // hosts):
                    yield share(step, device, devices, options.batch_size, order.length)

        def batch(numbers: tf.Tensor) -> tf.Tensor:
            drawn = tf.cast(tf.gather(rows, numbers), tf.int32)
            if options.pad == "sequence":
                return drawn
            return drawn[:, : tf.reduce_max(tf.reduce_sum(tf.cast(drawn != PADDING, tf.int32), axis=1))]

        drawn = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([options.batch_size], tf.int64))
        return drawn.map(batch, num_parallel_calls=options.preprocessing_workers, deterministic=True).prefetch(2)

    return iter(strategy.distribute_datasets_from_function(pipeline))


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace) -> tuple[keras.Model, keras.Optimizer]:
    keras.utils.set_random_seed(options.seed)
    model = network(options.sequence, options.width, options.layers, options.heads)
    optimizer = keras.optimizers.Adam(options.learning_rate)
    optimizer.build(model.trainable_variables)
    return model, optimizer


# -- Step -------------------------------------------------------------------------------------------------------------


def compiled_step(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.Optimizer, compiler: str
) -> tuple[Callable[..., tf.Tensor], Callable[[], int]]:
    """The step on one batch of each device, which returns the mean loss of ``count`` targets; and its compilations so far."""
    variables = model.trainable_variables

    @tf.function(jit_compile=compiler == "xla")
    def loss_and_gradients(text: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        targets = tf.where(text[:, 1:] == PADDING, IGNORED, text[:, 1:])
        with tf.GradientTape() as tape:
            loss = token_loss(model(text[:, :-1], training=True), targets, count)
        return loss, [tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)]

    def on_a_device(text: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        loss, gradients = loss_and_gradients(text, count)
        optimizer.apply(gradients, variables)  # of their sums over devices and hosts
        return loss

    @tf.function
    def step(text: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(on_a_device, args=(text, count)), axis=None)

    # One trace is one set of shapes, and XLA compiles each once.
    return step, loss_and_gradients.experimental_get_tracing_count if compiler == "xla" else lambda: 0


class CompilationGuard:
    """Detects that a step was compiled again after the first one, and reports the shape of its batch."""

    def __init__(self, compilations: Callable[[], int], act: str) -> None:
        self._compilations, self._act, self._known = compilations, act, 0

    def look(self, step: int, shape: list[int]) -> None:
        """After each step. Raises ``RuntimeError`` where ``act`` is ``fail``."""
        before, self._known = self._known, self._compilations()
        if 0 < before < self._known:
            why = f"step {step} compiled again: the batch was {shape}; pad every batch to one length, and keep values in tensors"
            if self._act == "fail":
                raise RuntimeError(why)
            print(f"warning: {why}", flush=True)


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    strategy = strategy_of(job)
    stop = Stop(strategy, len(job.group_hosts), options.stop_check_every)
    with strategy.scope():
        model, optimizer = build(options)
    text, devices = sequences(job.channels.get("text"), options.sequence), strategy.num_replicas_in_sync
    targets = np.count_nonzero(text[:, 1:] != PADDING, axis=1)
    order = Order(len(text) - 1, options.batch_size * devices, options.seed)
    fixed = {"samples": order.length, **{name: getattr(options, name) for name in FIXED}}
    free = {"batch_size": options.batch_size, "devices": devices}
    checkpointer = Checkpointer(job, model, optimizer, fixed=fixed, free=free)
    progress = checkpointer.restore()
    check_same_step(strategy, progress.steps)
    where = f"{devices} devices of {len(job.group_hosts)} hosts, from step {progress.steps}"
    print(f"host {job.host} of {job.group} trains with compiler {options.compiler} on {where}", flush=True)
    step, compilations = compiled_step(strategy, model, optimizer, options.compiler)
    guard = CompilationGuard(compilations, options.on_recompile)
    times: list[float] = []
    data = batches(strategy, text, order, progress.samples, options)
    began = time.perf_counter()
    for number in range(progress.steps + 1, options.steps + 1):
        batch, drawn = next(data), order.at(progress.samples)
        optimizer.learning_rate = rate = scheduled_rate(options, number, options.steps, order.batch)
        loss = step(batch, tf.constant(targets[drawn].sum()))
        progress.steps, progress.samples = number, progress.samples + len(drawn)
        guard.look(number, list(strategy.experimental_local_results(batch)[0].shape))
        # Logging and checkpoints are outside what is compiled, and only they wait for the device.
        if not times or number % options.log_every == 0:
            print(f"step {number} loss {float(loss):.6f} learning_rate {rate:.6g}", flush=True)
        stopping = number < options.steps and stop.agreed(number)
        if stopping or number % options.checkpoint_every == 0 or number == options.steps:
            checkpointer.save()
            if checkpointer.chief:
                print(f"kept step {number}", flush=True)
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {number}", flush=True)
            return
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    report(times, compilations(), options, devices)
    if checkpointer.chief:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.keras")


def report(times: list[float], compilations: int, options: argparse.Namespace, devices: int) -> None:
    """Print the lines of the job's metric definitions."""
    if len(times) < 2:
        return
    steady = float(np.median(times[1:]))
    tokens = options.batch_size * options.sequence * devices
    print(f"steady step {1000 * steady:.3f} ms, tokens/s {tokens / steady:.0f}")
    if options.compiler != "none":
        print(f"compile time {max(times[0] - steady, 0):.3f} s")
    print(f"compilations {compilations}")
    print(f"peak memory {peak_memory() / 2**20:.0f} MiB", flush=True)


def peak_memory() -> int:
    """Bytes: of the first GPU, else of this process."""
    if tf.config.list_logical_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    options = config()
    use_the_jobs_network()
    try:
        train(Job.here(), options)
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
