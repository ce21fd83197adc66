"""What a careful person gets wrong with Keras on several replicas of tf.distribute, as changes of scripts.

`run_strategy_script.py` runs them in TensorFlow, on as many replicas as it is told.
"""

from __future__ import annotations

from dataclasses import replace

from distributed_scripts import Plant

from training_jobs.lint import Job

# A machine with two GPUs, and Keras as in AWS's container of TensorFlow 2.21.
TWO = Job(entry_point="train.py", hosts=1, processes_per_host=1, launched=False, devices=2, versions={"keras": "3.15"})
OLDER = replace(TWO, versions={"keras": "3.6.0"})
WORKERS = replace(TWO, hosts=2, launched=None, devices=1)
APART = replace(WORKERS, launched=False)

OF_FIT = """
import numpy
import tensorflow as tf


class Squares(tf.keras.losses.Loss):
    def call(self, labels, predicted):
        return tf.reduce_mean(tf.square(predicted - labels), axis=-1)


def squares(labels, predicted):
    return tf.reduce_mean(tf.square(predicted - labels), axis=-1)


class Model(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones")
        self.logged = tf.keras.metrics.Mean(name="loss")

    def call(self, images, training=False):
        return self.dense(images)


strategy = tf.distribute.MirroredStrategy()
images = numpy.sin(numpy.arange(128, dtype="float32")).reshape(32, 4)
labels = images.sum(1, keepdims=True) + 1
with strategy.scope():
    model = Model()
    model(images[:1])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")
model.fit(images, labels, batch_size=32, shuffle=False)
"""
FIT = "model.fit(images, labels, batch_size=32, shuffle=False)\n"
COMPILED = 'model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")'
BY_HAND = """
def step(images, labels):
    with tf.GradientTape() as tape:
        errors = tf.reduce_mean(tf.square(model(images) - labels), 1)
        loss = tf.nn.compute_average_loss(errors, global_batch_size=32)
    variables = model.trainable_variables
    model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
for batch in strategy.experimental_distribute_dataset(data):
    strategy.run(step, args=batch)
"""
SEVERAL = (("tf.distribute.MirroredStrategy()", "tf.distribute.MultiWorkerMirroredStrategy()"),)
METHODS = "    def call(self, images, training=False):\n        return self.dense(images)\n\n\nstrategy"
COMPUTES = """    @property
    def metrics(self):
        return [self.logged]

    def compute_loss(self, x=None, y=None, y_pred=None, *others, **more):
        loss = tf.reduce_mean(tf.square(y_pred - y)){}
        self.logged.update_state(loss)
        return loss

"""
STEPS = """    def train_step(self, data):
        images, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(images, training=True) - labels))
            scaled = {}
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {{"loss": loss}}

"""
REPLICAS = "tf.distribute.get_strategy().num_replicas_in_sync"


def with_method(text: str) -> tuple[tuple[str, str], ...]:
    return ((METHODS, METHODS.replace("\n\n\nstrategy", f"\n\n{text}\nstrategy")),)


WAYS_OF_LOSS = {
    "a compiled loss that is a mean": Plant(
        "strategy-mean",
        TWO,
        "    return tf.reduce_mean(tf.square(predicted - labels), axis=-1)\n\n\nclass Model",
        "    return tf.reduce_mean(tf.square(predicted - labels))  # HERE\n\n\nclass Model",
        also=((COMPILED, COMPILED.replace('"mse"', "squares")),),
        of=OF_FIT,
    ),
    "a Loss that is a mean": Plant(
        "strategy-mean",
        TWO,
        "        return tf.reduce_mean(tf.square(predicted - labels), axis=-1)\n\n\ndef",
        "        error = tf.reduce_mean(tf.square(predicted - labels))\n        return 1.0 * error  # HERE\n\n\ndef",
        also=((COMPILED, COMPILED.replace('"mse"', "Squares()")),),
        of=OF_FIT,
    ),
    "a compute_loss that is a mean": Plant(
        "strategy-mean",
        TWO,
        f" / {REPLICAS}\n        self.logged.update_state(loss)\n        return loss\n",
        "\n        self.logged.update_state(loss)\n        return loss  # HERE\n",
        also=with_method(COMPUTES.format(f" / {REPLICAS}")),
        of=OF_FIT,
    ),
    "a train_step of a mean": Plant(
        "strategy-mean",
        TWO,
        f"            scaled = loss / {REPLICAS}\n        gradients = tape.gradient(scaled, self.trainable_variables)\n",
        "        gradients = tape.gradient(loss, self.trainable_variables)  # HERE\n",
        also=with_method(STEPS.format(f"loss / {REPLICAS}")),
        of=OF_FIT,
    ),
}
STRATEGY_PLANTS = {
    "fit of Keras 3 before 3.8": Plant(
        "strategy-fit", OLDER, BY_HAND, FIT.replace("\n", "  # HERE\n"), ((FIT, BY_HAND),), of=OF_FIT
    ),
    "fit of Keras 3 on several machines": Plant(
        "strategy-fit", WORKERS, BY_HAND, FIT.replace("\n", "  # HERE\n"), (*SEVERAL, (FIT, BY_HAND)), of=OF_FIT
    ),
    "gradients that Keras accumulates": Plant(
        "strategy-fit",
        TWO,
        "SGD(0.05)",
        "SGD(0.05, gradient_accumulation_steps=2)",
        (('loss="mse")', 'loss="mse")  # HERE'),),
        of=OF_FIT,
    ),
    **WAYS_OF_LOSS,
    "gradients that each replica limits": Plant(
        "strategy-clip",
        TWO,
        "SGD(0.05, clipnorm=0.1 / strategy.num_replicas_in_sync)",
        "SGD(0.05, clipnorm=0.1)",
        (
            ("SGD(0.05)", "SGD(0.05, clipnorm=0.1 / strategy.num_replicas_in_sync)"),
            ('loss="mse")', 'loss="mse")  # HERE'),
        ),
        of=OF_FIT,
    ),
    "machines that nothing tells of each other": Plant(
        "tf-config",
        APART,
        'os.environ["TF_CONFIG"] = tf_config()\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n',
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()  # HERE\n",
        (*SEVERAL, (FIT, BY_HAND), ("strategy = tf", 'os.environ["TF_CONFIG"] = tf_config()\nstrategy = tf')),
        of=OF_FIT,
    ),
}
