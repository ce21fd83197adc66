"""tf.data service: a dispatcher and a worker process per stream, none of them in the reading process.

A worker in the reading process would pass its batches without the network, which is not compared here. Compression is off and the
batches are not constants of the graph, as in a fast pipeline.
"""

from __future__ import annotations

import contextlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from harness import POOL, SIDE, Run, data_host, measure, pool, serve_until_closed, serving

service = tf.data.experimental.service


def serve() -> None:
    """Number 0 is the dispatcher, the others are workers of the dispatcher whose port is that of number 0."""
    dispatcher_port = int(os.environ.get("DISPATCHER_PORT", "0"))
    if not dispatcher_port:
        dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
        serve_until_closed(int(dispatcher.target.rpartition(":")[2]))
        return
    config = service.WorkerConfig(dispatcher_address=f"127.0.0.1:{dispatcher_port}", port=0)
    worker = service.WorkerServer(config)
    serve_until_closed(0)
    worker.stop()


def ready(run: Run) -> tf.data.Dataset:
    batches = pool(run.batch_size)
    images, labels = (tf.constant([batch[part] for batch in batches]) for part in range(2))
    return tf.data.Dataset.range(POOL).repeat().map(lambda number: (images[number], labels[number]))


def main() -> None:
    run = Run.here()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(data_host())
        os.environ["DISPATCHER_PORT"] = str(port)
        for _ in range(run.streams):
            stack.enter_context(data_host())
        batches = ready(run).apply(
            service.distribute(
                processing_mode=service.ShardingPolicy.OFF, service=f"grpc://127.0.0.1:{port}", compression=None
            )
        )
        measure(run, batches.prefetch(1).as_numpy_iterator())


if __name__ == "__main__":
    assert SIDE == 28
    if serving():
        serve()
    else:
        main()
