import os

import keras
import numpy as np
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = x.astype("float32") / 16
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)])
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, np.asarray(y), epochs=2, batch_size=64, verbose=2)
model.save(os.path.join(os.environ.get("SM_MODEL_DIR", "."), "model.keras"))
