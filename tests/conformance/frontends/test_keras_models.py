"""Models of Keras 3 (over torch), as ONNX files that they export and as modules: what they predict.

Keras reads its backend when it is imported, so the models live in a process of their own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.needs_torch,
    pytest.mark.skipif(
        importlib.util.find_spec("keras") is None,
        reason="Keras is not installed (extra 'keras')",
    ),
]

HEAD = """
import warnings
warnings.simplefilter("ignore")
import sys
import keras
import numpy as np
import torch
import tilewright as tw
from keras import layers

rng = np.random.default_rng(0)
keras.utils.set_random_seed(7)

def same(found, expected):
    found = found if isinstance(found, (list, tuple)) else [found]
    expected = expected if isinstance(expected, list) else [expected]
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)

def checked(model, x):
    path = sys.argv[1]
    model.predict(x, verbose=0)  # one that was never called has no shapes to export
    model.export(path, format="onnx", verbose=False)
    compiled = tw.compile(path)
    for batch in (x, x[:1], np.concatenate([x, x, x])):  # the exported size of a batch is a name
        same(compiled(batch), model.predict(batch, verbose=0))

def checked_as_module(model, x):
    model.eval()
    compiled = tw.compile(model, args=(torch.from_numpy(x),))
    same(compiled(x), model.predict(x, verbose=0))
"""

IMAGE = """
image = keras.Input((33, 29, 3))
x = layers.Rescaling(1 / 255.0)(image)
x = layers.Conv2D(8, 3, strides=2, padding="same")(x)
x = layers.ReLU(max_value=6)(layers.BatchNormalization()(x))
x = layers.Add()([x, layers.DepthwiseConv2D(3, padding="same", activation="swish")(x)])
x = layers.MaxPooling2D()(layers.SeparableConv2D(12, 3, activation="gelu")(x))
x = layers.Conv2DTranspose(6, 3, strides=2)(x)
x = layers.GlobalAveragePooling2D()(layers.AveragePooling2D(2)(x))
model = keras.Model(image, layers.Dense(10, activation="softmax")(x))
checked(model, rng.uniform(0, 255, (2, 33, 29, 3)).astype("float32"))
"""

TEXT = """
words = keras.Input((17,), dtype="int32")
x = layers.Embedding(50, 16)(words)
x = layers.Bidirectional(layers.LSTM(7, return_sequences=True))(x)
model = keras.Model(words, layers.Dense(3)(layers.GRU(5)(x)))
checked(model, rng.integers(0, 50, (2, 17)).astype("int32"))
"""

TABLE = """
row = keras.Input((11,))
x = layers.Normalization(mean=np.arange(11.0), variance=np.ones(11))(row)
x = layers.Dropout(0.5)(layers.Dense(32, activation="swish")(x))
model = keras.Model(row, [layers.Dense(1, activation="sigmoid")(x), layers.Dense(4)(x)])
checked(model, rng.standard_normal((3, 11)).astype("float32"))
"""

SIGNAL = """
signal = keras.Input((40, 4))
x = layers.Conv1D(8, 5, padding="causal", dilation_rate=2, activation="elu")(signal)
x = layers.Reshape((8, 40))(layers.Flatten()(layers.Attention()([x, x])))
model = keras.Model(signal, layers.Cropping1D(1)(layers.ZeroPadding1D(2)(layers.Permute((2, 1))(x))))
checked(model, rng.standard_normal((2, 40, 4)).astype("float32"))
"""

TRANSFORMER = """
tokens = keras.Input((19, 24))
x = layers.LayerNormalization()(tokens + layers.MultiHeadAttention(3, 8)(tokens, tokens))
y = layers.Dense(24)(layers.Dense(48, activation="gelu")(x))
x = layers.GlobalMaxPooling1D()(layers.LayerNormalization(epsilon=1e-6)(x + y))
model = keras.Model(tokens, layers.Dense(4)(x))
checked_as_module(model, rng.standard_normal((2, 19, 24)).astype("float32"))
"""


@pytest.mark.parametrize(
    "models", [(IMAGE, TEXT, TABLE, SIGNAL), (TRANSFORMER,)], ids=["exported", "a module"]
)
def test_models_predict_what_keras_predicts(
    models: tuple[str, ...], tmp_path: Path
) -> None:
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", "".join([HEAD, *models]), str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-4000:]
