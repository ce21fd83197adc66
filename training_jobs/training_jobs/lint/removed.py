"""What newer versions of libraries no longer have: a script that asks for it ends, some only when the training is over.

Sources: TensorFlow's release notes ("2.16": Keras 3 is the default, tf.estimator is removed; "2.0": what tf.compat.v1 keeps) and
those of NumPy 1.24 (expired deprecations); "What's New In Python", "Removed"; pytorch/pytorch#94709; the warnings of PyTorch/XLA
2.6 (huggingface/transformers#37301); and the errors of TensorFlow 2.15.1, 2.16.2 and 2.21.0, NumPy, Python and transformers, for
which tests ask.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from training_jobs.facts.libraries import names_of_others
from training_jobs.lint.script import Script, constant, keyword, name_of

Versions = Mapping[str, str]


class Removed(NamedTuple):
    """Names that a library no longer has.

    Attributes:
        since: The first version without them.
        names: Their whole names, with all that is below them.
        instead: What to use.
    """

    since: str
    names: tuple[str, ...]
    instead: str


_KERAS_3 = "2.16"
# Of Python's own modules. distutils is not among them: setuptools, which most containers have, puts one in its place.
_OF_PYTHON = (
    Removed("3.8", ("time.clock",), "time.perf_counter"),
    Removed("3.8", ("platform.linux_distribution", "platform.dist"), "the package distro"),
    Removed("3.9", ("base64.encodestring", "base64.decodestring"), "encodebytes and decodebytes"),
    Removed("3.9", ("fractions.gcd",), "math.gcd"),
    Removed(
        "3.10",
        tuple(
            f"collections.{name}"
            for name in (
                *("Callable", "Container", "Hashable", "Iterable", "Iterator", "Mapping", "MutableMapping"),
                *("MutableSequence", "MutableSet", "Sequence", "Set", "Sized"),
            )
        ),
        "collections.abc",
    ),
    Removed("3.11", ("inspect.getargspec", "inspect.formatargspec"), "inspect.signature"),
    Removed("3.11", ("asyncio.coroutine",), "async def"),
    Removed("3.12", ("imp", "importlib.find_loader"), "importlib.util"),
    Removed("3.12", ("asynchat", "asyncore", "smtpd"), "asyncio"),
    Removed("3.12", ("ssl.wrap_socket", "ssl.match_hostname"), "ssl.SSLContext"),
    Removed("3.12", ("locale.format",), "locale.format_string"),
    Removed("3.12", ("configparser.SafeConfigParser",), "configparser.ConfigParser"),
    Removed(
        "3.13",
        (
            *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "nis", "nntplib"),
            *("ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
        ),
        "a package from PyPI (PEP 594)",
    ),
)
REMOVED: Mapping[str, tuple[Removed, ...]] = {
    "torch": (Removed("2.0", ("torch._six",), "math.inf, str and collections.abc"),),
    "torch_xla": (
        Removed("2.7", ("torch_xla.core.xla_model.xrt_world_size",), "torch_xla.runtime.world_size"),
        Removed("2.7", ("torch_xla.core.xla_model.get_ordinal",), "torch_xla.runtime.global_ordinal"),
    ),
    "numpy": (
        Removed(
            "1.24", ("numpy.float", "numpy.int", "numpy.object", "numpy.complex", "numpy.str"), "Python's own types"
        ),
    ),
    "tensorflow": (
        Removed(
            "2.0",
            (
                "tensorflow.contrib",
                "tensorflow.app",
                "tensorflow.flags",
                "tensorflow.logging",
                "tensorflow.gfile",
                "tensorflow.layers",
                "tensorflow.placeholder",
                "tensorflow.set_random_seed",
                "tensorflow.get_default_graph",
                "tensorflow.global_variables_initializer",
                "tensorflow.ConfigProto",
                "tensorflow.Session",
                "tensorflow.train.AdamOptimizer",
                "tensorflow.train.GradientDescentOptimizer",
                "tensorflow.train.Saver",
                "tensorflow.summary.FileWriter",
            ),
            "tensorflow.compat.v1, which has all but contrib",
        ),
        Removed(
            _KERAS_3,
            ("tensorflow.estimator", "tensorflow.compat.v1.estimator", "tensorflow.keras.estimator"),
            "a model of tf.keras",
        ),
        Removed(_KERAS_3, ("tensorflow.keras.layers.experimental",), "tf.keras.layers"),
        Removed(_KERAS_3, ("tensorflow.keras.experimental",), "tf.keras.optimizers.schedules"),
        Removed(_KERAS_3, ("tensorflow.keras.optimizers.experimental",), "tf.keras.optimizers"),
        Removed(_KERAS_3, ("tensorflow.keras.backend.learning_phase",), "training=True in the call"),
    ),
}
_LEFT_OUT = "leave it out"
# Keywords of methods and classes that Keras 3 does not take.
_KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "fit": dict.fromkeys(("workers", "use_multiprocessing", "max_queue_size"), "give it to a keras.utils.PyDataset"),
    "compile": {"experimental_run_tf_function": _LEFT_OUT},
    "ModelCheckpoint": {"period": "name it save_freq"},
    "TensorBoard": {"write_grads": _LEFT_OUT, "batch_size": _LEFT_OUT},
    "BatchNormalization": {"fused": _LEFT_OUT},
}
_GENERATORS = {"fit_generator": "fit", "evaluate_generator": "evaluate", "predict_generator": "predict"}
_WEIGHTS = (".weights.h5",)
_MODELS = (".keras", ".h5", ".hdf5")
_EXPORT = "name a file, or write a SavedModel by model.export(folder)"


class _Paths(NamedTuple):
    """The paths that a function takes: which argument, of a model's method or of keras, their endings, and what to do."""

    position: int
    of_model: bool
    endings: tuple[str, ...]
    instead: str


_PATHS = {
    "save": _Paths(0, True, _MODELS, _EXPORT),
    "save_weights": _Paths(0, True, _WEIGHTS, "name such a file"),
    "save_model": _Paths(1, False, _MODELS, _EXPORT),
    "load_model": _Paths(0, False, _MODELS, "read a SavedModel by tf.saved_model.load, or keras.layers.TFSMLayer"),
    "ModelCheckpoint": _Paths(0, False, (".keras", ".h5"), "name such a file"),
}
LEGACY_KERAS = re.compile(r"TF_USE_LEGACY_KERAS|\btf_keras\b")
_FOLDER = re.compile(r"(?:dir|folder|directory)$")
_OF_FOLDERS = re.compile(r"os\.(?:environ\[|environ\.get\(|getenv\().*SM_(?:MODEL|OUTPUT|OUTPUT_DATA)_DIR")


def removed(script: Script, versions: Versions, own: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the lines and reasons of what a script asks for and the versions of its libraries no longer have, each name once.

    Args:
        script: A file.
        versions: The versions that it finds, by ``python``, ``torch``, ``transformers`` and others; those left out are not known.
        own: The modules beside it.
    """
    found = dict[str, int]()
    for line, name, node in _names(script):
        library = name.partition(".")[0]
        # PyTorch/XLA has PyTorch's version.
        reason = _reason(name, library, versions.get("torch" if library == "torch_xla" else library)) or _gone(
            name, "python", versions.get("python"), _OF_PYTHON
        )
        if reason and library not in own and not script.asks_version(node):
            found[reason] = min(line, found.get(reason, line))
    yield from ((line, reason) for reason, line in found.items())
    version = versions.get("tensorflow")
    asks = script.imports & {"tensorflow", "keras"} and not LEGACY_KERAS.search(script.text)
    for line, reason in _of_keras(script) if version and asks and not _older(version, _KERAS_3) else ():
        yield line, f"{reason} (Keras 3, which TensorFlow {version} has)"


def _older(version: str, since: str) -> bool:
    numbers = [[*map(int, re.findall(r"\d+", text)[:2])] for text in (version, since)]
    return numbers[0] < numbers[1]


def _reason(name: str, library: str, version: str | None) -> str:
    if version is None:
        return ""
    if gone := _gone(name, library, version, REMOVED.get(library, ())):
        return gone
    first = f"{name}.".split(".")[1]
    others = names_of_others(library, version).get(first)
    return f"{library} {version} has no {first}, {others}" if others else ""


def _gone(name: str, library: str, version: str | None, gone: Sequence[Removed]) -> str:
    for one in gone if version else ():
        for known in one.names:
            if (name == known or name.startswith(f"{known}.")) and not _older(version or "", one.since):
                named = "Python" if library == "python" else library
                return f"{named} {version} has no {known}, since {one.since}: use {one.instead}"
    return ""


def _names(script: Script) -> Iterator[tuple[int, str, ast.AST]]:
    """The whole names that a script imports or reads, but for those that it tries to import, wherever it reads them."""
    tried = {
        alias.asname or alias.name
        for node in script.nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and script.asks_version(node)
        for alias in node.names
    }
    for node in script.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}", node) for alias in node.names)
        elif isinstance(node, ast.Attribute) and (name := script.imported(node)):
            read = ast.unparse(node).partition(".")[0] if tried else ""
            yield from () if read in tried else ((node.lineno, name, node),)


def _of_keras(script: Script) -> Iterator[tuple[int, str]]:
    fitted = [call.func for call in script.calls if name_of(call) == "fit"]
    models = {ast.unparse(function.value) for function in fitted if isinstance(function, ast.Attribute)}
    for call in script.calls:
        whole, name = script.imported(call.func), name_of(call)
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        of_keras = "keras" in whole.split(".")
        of_model = not whole and (owner in models or owner.lower().endswith("model"))
        if not (of_keras or of_model) or script.asks_version(call):
            continue
        if (taken := _PATHS.get(name)) is not None and of_model is taken.of_model:
            yield from _of_path(script, call, name, taken)
        for one in call.keywords:
            if one.arg and one.arg in _KEYWORDS.get(name, {}):
                yield one.value.lineno, f"{name} takes no {one.arg}: {_KEYWORDS[name][one.arg]}"
            elif one.arg == "lr" and "optimizers" in whole.split("."):
                yield one.value.lineno, f"{name} takes no lr: name it learning_rate"
        if "keras.optimizers.legacy." in whole:
            yield call.lineno, f"{whole} is an ImportError: use tf.keras.optimizers.{name}"
        if of_model and name in _GENERATORS:
            yield call.lineno, f"a model has no {name}: use {_GENERATORS[name]}"


def _of_path(script: Script, call: ast.Call, name: str, taken: _Paths) -> Iterator[tuple[int, str]]:
    given = call.args[taken.position] if len(call.args) > taken.position else keyword(call, "filepath")
    weights = constant(keyword(call, "save_weights_only")) is True
    endings, end = (_WEIGHTS if weights else taken.endings), _end(script, given)
    if end is not None and not end.endswith(endings):
        yield call.lineno, f"{name} takes paths that end with {' or '.join(endings)} alone: {taken.instead}"


def _end(script: Script, node: ast.expr | None) -> str | None:
    """How a path ends, as far as the script says; "" for that of a folder."""
    if node is None or isinstance(constant(node), str):
        return None if node is None else str(constant(node))
    if isinstance(node, ast.JoinedStr) and node.values:
        last = node.values[-1]
        return _end(script, last.value if isinstance(last, ast.FormattedValue) else last)
    if isinstance(node, ast.BinOp):
        return _end(script, node.right)
    if isinstance(node, ast.Call) and name_of(node) in ("join", "joinpath", "str", "Path") and node.args:
        return _end(script, node.args[-1])
    if _OF_FOLDERS.search(ast.unparse(node)):
        return ""
    if isinstance(node, ast.Name):
        values = [
            one.value
            for one in script.nodes
            if isinstance(one, ast.Assign) and [ast.unparse(target) for target in one.targets] == [node.id]
        ]
        if len(values) == 1 and node not in ast.walk(values[0]):
            return _end(script, values[0])
    return "" if _FOLDER.search(ast.unparse(node)) else None
