"""Train a byte-level language model on the text of Python's standard library, with TensorFlow and a step that XLA compiles.

On a laptop:          PYTHONPATH=training_code python training_code/compiled/tensorflow/train.py --compiler xla
On SageMaker:         a CompiledJob with TensorFlowXla, on one host or more (docs/compiled.md)

Every host starts this file once; TensorFlow's own strategies join the hosts, and the GPUs of each. XLA compiles the loss and its
gradients, which is nearly all of a step. The sums over hosts stay outside, so that the same step runs on any machine: on the CPU
TensorFlow 2.21 refuses them with "Collectives are not yet implemented for CPU devices when compiling with XLA".

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint, after the
same step on all hosts.
"""

# ran: `compiled/tensorflow/train.py`, XLA | no | test_compiled | no | no

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from common.job import Job, use_the_jobs_network
from common.tensorflow_stop import Stop
from model import PADDING, loss_of, network, sequences

# -- Config -----------------------------------------------------------------------------------------------------------

PORT = 8890  # of each host, the same as SageMaker's toolkit uses for this purpose


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--compiler", choices=("none", "xla"), default=os.environ.get("TRAINING_COMPILER", "none"), help="of the step"
    )
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--batch-size", type=int, default=16, help="of each device that trains")
    arguments.add_argument("--sequence", type=int, default=128, help="bytes that each sample is padded or cut to")
    arguments.add_argument("--pad", choices=("sequence", "longest"), default="sequence", help="longest: a bad example")
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--layers", type=int, default=2)
    arguments.add_argument("--heads", type=int, default=4)
    arguments.add_argument("--learning-rate", type=float, default=1e-3)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument(
        "--preprocessing-workers", type=int, default=2, help="threads of each host that read and pad"
    )
    arguments.add_argument("--log-every", type=int, default=10, help="steps; each line waits for the device")
    arguments.add_argument("--checkpoint-every", type=int, default=50, help="steps")
    # SageMaker kills a job two minutes after SIGTERM.
    arguments.add_argument(
        "--stop-check-every", type=int, default=5, help="steps between collective checks for SIGTERM"
    )
    arguments.add_argument("--on-recompile", choices=("fail", "warn"), default="fail")
    options = arguments.parse_args()
    for name in (
        "steps",
        "batch_size",
        "sequence",
        "preprocessing_workers",
        "log_every",
        "checkpoint_every",
        "stop_check_every",
    ):
        if getattr(options, name) < 1:
            arguments.error(f"--{name.replace('_', '-')} must be at least 1, like 8, got {getattr(options, name)}")
    return options


def strategy_of(job: Job) -> tf.distribute.Strategy:
    """The strategy over the devices of all hosts, or of this one; to be called before TensorFlow is initialized."""
    if len(job.group_hosts) > 1:
        cluster = {"worker": [f"{host}:{PORT}" for host in job.group_hosts]}
        task = {"type": "worker", "index": job.group_hosts.index(job.host)}
        os.environ.setdefault("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches(
    strategy: tf.distribute.Strategy, job: Job, options: argparse.Namespace, first: int
) -> Iterator[tf.Tensor | tf.distribute.DistributedValues]:
    """For each step from ``first`` on, bytes as int32 [batch_size, sequence + 1] for each device of this host.

    The data of a step are a function of seed, step and device, so that a resumed job continues with the same batches.
    """
    text = sequences(job.channels.get("text"), options.sequence)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        here = strategy.num_replicas_in_sync // context.num_input_pipelines
        rows = tf.constant(text)

        def batch(number: tf.Tensor) -> tf.Tensor:
            # Devices draw one after the other from one sequence of seeds, whichever hosts they are in.
            place = number * context.num_input_pipelines + context.input_pipeline_id
            seed = [tf.constant(options.seed, tf.int64), place]
            chosen = tf.random.stateless_uniform([options.batch_size], seed, 0, len(text), tf.int32)
            drawn = tf.cast(tf.gather(rows, chosen), tf.int32)
            if options.pad == "sequence":
                return tf.ensure_shape(drawn, [options.batch_size, options.sequence + 1])
            return drawn[:, : tf.reduce_max(tf.reduce_sum(tf.cast(drawn != PADDING, tf.int32), axis=1))]

        numbers = tf.data.Dataset.range(first * here, options.steps * here)
        return numbers.map(batch, num_parallel_calls=options.preprocessing_workers, deterministic=True).prefetch(2)

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
    """The step on one batch of each device, which returns the mean loss; and how often it was compiled so far."""
    variables = model.trainable_variables

    @tf.function(jit_compile=compiler == "xla")
    def loss_and_gradients(text: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = loss_of(model(text[:, :-1], training=True), text[:, 1:])
        return loss, [tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)]

    def on_a_device(text: tf.Tensor) -> tf.Tensor:
        loss, gradients = loss_and_gradients(text)
        # The optimizer sums over devices and hosts.
        optimizer.apply([part / strategy.num_replicas_in_sync for part in gradients], variables)
        return loss

    @tf.function
    def step(text: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(on_a_device, args=(text,)), axis=None)

    # One trace is one set of shapes, and XLA compiles each once.
    return step, loss_and_gradients.experimental_get_tracing_count if compiler == "xla" else lambda: 0


class CompilationGuard:
    """Detects that a step was compiled again after the first one, and reports the shapes."""

    def __init__(self, compilations: Callable[[], int], act: str) -> None:
        self._compilations, self._act = compilations, act
        self._most = 0
        self._known: list[list[int]] = []

    def look(self, step: int, shape: list[int]) -> None:
        """After each step. Raises ``RuntimeError`` where ``act`` is ``fail``."""
        again = bool(self._known) and self._compilations() > self._most
        self._most = self._compilations()
        if again:
            why = (
                f"the batch was {shape} and compiled before were {self._known}; pad every batch to one length"
                if shape not in self._known
                else f"the batch was {shape} as before; a value in the step that is no tensor has changed"
            )
            if self._act == "fail":
                raise RuntimeError(f"step {step} compiled again: {why}")
            print(f"warning: step {step} compiled again: {why}", flush=True)
        if shape not in self._known:
            self._known.append(shape)


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    strategy = strategy_of(job)
    stop = Stop(strategy, len(job.group_hosts), options.stop_check_every)
    with strategy.scope():
        model, optimizer = build(options)
    chief = job.host == job.group_hosts[0]
    taken = tf.Variable(0, dtype=tf.int64, trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, taken=taken)
    keeper = tf.train.CheckpointManager(checkpoint, str(job.checkpoints), max_to_keep=2)
    if keeper.latest_checkpoint:
        checkpoint.restore(keeper.latest_checkpoint).assert_consumed()
        optimizer.learning_rate = options.learning_rate  # the checkpoint has the one before
    first = int(taken.numpy())
    print(
        f"host {job.host} of {job.group} trains with compiler {options.compiler} on {strategy.num_replicas_in_sync} devices "
        f"of {len(job.group_hosts)} hosts, from step {first}",
        flush=True,
    )
    step, compilations = compiled_step(strategy, model, optimizer, options.compiler)
    guard = CompilationGuard(compilations, options.on_recompile)
    times: list[float] = []
    began = time.perf_counter()
    # Counted, since an iterator over several hosts ends with an empty batch.
    for number, text in zip(range(first + 1, options.steps + 1), batches(strategy, job, options, first), strict=False):
        loss = step(text)
        guard.look(number, list(strategy.experimental_local_results(text)[0].shape))
        # Logging and keeping are outside what is compiled, and only they wait for the device.
        if number == first + 1 or number % options.log_every == 0:
            print(f"step {number} loss {float(loss):.6f}", flush=True)
        stopping = number < options.steps and stop.agreed(number)
        if stopping or number % options.checkpoint_every == 0 or number == options.steps:
            taken.assign(number)
            if chief:
                keeper.save(checkpoint_number=number)
                print(f"kept step {number}", flush=True)
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {number}", flush=True)
            return
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    report(times, compilations(), options, strategy)
    if chief:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.keras")


def report(
    times: list[float], compilations: int, options: argparse.Namespace, strategy: tf.distribute.Strategy
) -> None:
    """Print the lines of the job's metric definitions."""
    if len(times) < 2:
        return
    steady = float(np.median(times[1:]))
    tokens = options.batch_size * options.sequence * strategy.num_replicas_in_sync
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
