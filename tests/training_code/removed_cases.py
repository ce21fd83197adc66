"""Statements of training scripts, and whether each ends with TensorFlow 2.16 and newer, whose Keras is version 3."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from contextlib import chdir

SETUP = """
import os
from pathlib import Path
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.callbacks import ModelCheckpoint
model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
features, labels = tf.zeros((2, 2)), tf.zeros((2, 1))
model_dir = "exported"
version = "00000001"
file = "kept.keras"
tf.saved_model.save(model, "saved_dir")
"""
CASES: dict[str, bool] = {
    "model.save('folder')": True,
    "model.save('folder/1')": True,
    "model.save(model_dir)": True,
    "model.save(os.path.join(model_dir, version))": True,
    "model.save(model_dir + '/' + version)": True,
    "model.save(f'{model_dir}/{version}')": True,
    "model.save(f'{model_dir}/1')": True,
    "model.save(Path(model_dir) / '1')": True,
    "model.save(filepath='model.pb')": True,
    "model.save(file)": False,
    "model.save('model.keras')": False,
    "model.save('saved_dir' + '/model.keras')": False,
    "model.save('model.h5')": False,
    "model.save('model.hdf5')": False,
    "model.save(f'model-{version}.keras')": False,
    "model.save(os.path.join('.', 'joined.keras'))": False,
    "model.export(model_dir)": False,
    "tf.saved_model.save(model, model_dir)": False,
    "keras.models.save_model(model, 'folder')": True,
    "keras.models.save_model(model, 'saved.keras')": False,
    "keras.models.load_model('saved_dir')": True,
    "tf.saved_model.load('saved_dir')": False,
    "model.save_weights('weights')": True,
    "model.save_weights('weights.h5')": True,
    "model.save_weights('model.weights.h5')": False,
    "ModelCheckpoint('checkpoint')": True,
    "ModelCheckpoint('checkpoint-{epoch}')": True,
    "ModelCheckpoint(filepath='checkpoint-{epoch}.keras')": False,
    "ModelCheckpoint('checkpoint-{epoch}.h5')": False,
    "ModelCheckpoint('checkpoint-{epoch}.h5', save_weights_only=True)": True,
    "ModelCheckpoint('checkpoint.keras', save_weights_only=True)": True,
    "ModelCheckpoint('checkpoint.weights.h5', save_weights_only=True)": False,
    "ModelCheckpoint('checkpoint.keras', period=1)": True,
    "tf.keras.optimizers.Adam(lr=0.1)": True,
    "keras.optimizers.SGD(lr=0.1)": True,
    "tf.keras.optimizers.Adam(learning_rate=0.1)": False,
    "tf.keras.optimizers.Adam(0.1)": False,
    "tf.keras.optimizers.legacy.Adam(0.1)": True,
    "tf.keras.optimizers.experimental.Adam": True,
    "model.fit(features, labels, verbose=0, workers=2)": True,
    "model.fit(features, labels, verbose=0, use_multiprocessing=True)": True,
    "model.fit(features, labels, verbose=0, epochs=1)": False,
    "model.fit_generator(iter([(features, labels)]))": True,
    "model.compile('sgd', 'mse', experimental_run_tf_function=False)": True,
    "keras.callbacks.TensorBoard('logs', write_grads=True)": True,
    "keras.callbacks.TensorBoard('logs', histogram_freq=1)": False,
    "keras.layers.BatchNormalization(fused=True)": True,
    "keras.layers.BatchNormalization(momentum=0.9)": False,
    "keras.layers.experimental.preprocessing.Rescaling(1 / 255)": True,
    "keras.layers.Rescaling(1 / 255)": False,
    "tf.keras.experimental.CosineDecay(0.1, 10)": True,
    "keras.backend.learning_phase()": True,
    "tf.estimator.RunConfig()": True,
    "tf.compat.v1.estimator.RunConfig()": True,
    "from tensorflow.keras.layers.experimental import preprocessing": True,
    "from tensorflow.keras.experimental import CosineDecay": True,
    "tf.Session()": True,
    "tf.compat.v1.Session()": False,
    "tf.placeholder(tf.float32)": True,
    "tf.contrib.layers": True,
    "import tensorflow.contrib": True,
    "tf.app.run()": True,
    "tf.flags.FLAGS": True,
    "tf.logging.info('x')": True,
    "tf.gfile.Exists('x')": True,
    "tf.io.gfile.exists('x')": False,
    "tf.layers.dense": True,
    "tf.set_random_seed(1)": True,
    "tf.random.set_seed(1)": False,
    "tf.get_default_graph()": True,
    "tf.global_variables_initializer()": True,
    "tf.ConfigProto()": True,
    "tf.train.AdamOptimizer(0.1)": True,
    "tf.train.GradientDescentOptimizer(0.1)": True,
    "tf.train.Saver()": True,
    "tf.train.Checkpoint(model=model)": False,
    "tf.summary.FileWriter('logs')": True,
    "tf.summary.create_file_writer('logs')": False,
}


def ended() -> dict[str, str]:
    """What each statement ends with, by a real TensorFlow; "" where it does not."""
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        exec(SETUP, names)
        found = {}
        for statement in CASES:
            try:
                exec(statement, dict(names))
                found[statement] = ""
            except Exception:
                found[statement] = traceback.format_exc(limit=0).strip().splitlines()[-1][:200]
        return found


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(ended())}\n")
