"""The deployable apps that ``training-jobs init`` writes, one for each kind of job."""

from __future__ import annotations

import json
import math
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_jobs.training_code import copy_training_code

_APP = '''"""A stack whose workflow trains a model each time it is started: `training-jobs local up`, or `cdk deploy`."""

import aws_cdk as cdk
{assets}from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training import (
{names}
)

app = cdk.App()
stack = cdk.Stack(app, "{stack}")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
{before}{data}TrainingWorkflow(
    stack,
    "Training",
    job={job},
    # {built}
    image=TrainingImage.{builder}(
        stack, "Image", directory="training_code", file="{folder}/Dockerfile"
    ),
{channels}    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    # `training-jobs resume` goes on from an older execution's checkpoints.
    resume_from=sfn.JsonPath.string_at("$.resume_from"),
    hyperparameters={hyperparameters},
    metric_definitions={{
{metrics}
    }},
    max_runtime=cdk.Duration.hours(1),
)
app.synth()
'''

_README = """# {stack}

```console
training-jobs local up          # an AWS account on this machine, with this stack deployed
training-jobs start --follow    # train, and watch it
training-jobs download --to model
training-jobs local stop
```

`app.py` is the stack, `training_code/{folder}/train.py` the training. On AWS: `cdk deploy`, then `training-jobs --aws start`.
{more}"""

_OWN_MODEL = """
For a model of your own, name in `app.py` a prefix with its config.json, tokenizer and safetensors as the channel `model`, and one
with what `prepare_tokens.py --tokenizer FOLDER TEXT ...` writes as `tokens`. The trained model is a folder for `from_pretrained`.
"""


_ARTICLE = (
    'AWS\'s article "Improve price performance of your model training using Amazon SageMaker heterogeneous clusters"'
)

_DIGITS = f"""
Images of handwritten digits, prepared on CPU machines for one GPU, as in the PyTorch application of
{_ARTICLE}:

| job | machines | dollars an hour | milliseconds a step | cents a step |
|---|---|---|---|---|
| the article's, on one machine | 1 ml.p3.2xlarge | 3.825 | 1193 | 0.127 |
| the article's, heterogeneous | 1 ml.p3.2xlarge, 1 ml.c5.9xlarge | 5.661 | 184 | 0.029 |
| this one | 1 ml.g5.xlarge, 2 ml.c5.xlarge | | not measured: it never ran on such machines | |

Its other application, with TensorFlow, tf.data service and Horovod, is `training-jobs init resnet-tensorflow`.
"""

_HOROVOD = f"""
Here one process trains for a few steps, since this machine has neither Horovod nor mpirun. On AWS, with Horovod on eight GPUs:

    cdk deploy --context horovod=true

The TensorFlow application of
{_ARTICLE}:

| job | machines | dollars an hour | milliseconds a step | cents a step |
|---|---|---|---|---|
| the article's, on one machine | 1 ml.p4d.24xlarge | 37.688 | 192 | 0.201 |
| the article's, heterogeneous | 1 ml.p4d.24xlarge, 2 ml.c5.18xlarge | 45.032 | 86 | 0.108 |
| this one | the same | 45.032 | not measured: it never ran on such machines | |

The article's other application, with PyTorch, is `training-jobs init heterogeneous`.
"""


_ADOPTED = """# A training job

`app.py` is a stack whose workflow sends the request of a job that was made by other means; its comments name what differs.

```console
cdk deploy
training-jobs start --follow
```
"""

_BUILDERS = {
    "from_asset": "Built by Docker on the machine that deploys; by from_codebuild in AWS.",
    "from_codebuild": "Built in AWS by CodeBuild, which logs in to the private registry of the base image.",
}

FILES = {"cdk.json": '{"app": "python3 app.py"}\n', ".gitignore": "cdk.out/\n.local-account/\n"}


@dataclass(frozen=True)
class App:
    """What sets one kind's app apart.

    Attributes:
        folder: Its folder of the packaged training code, or one within it.
        names: What the app imports, besides what all do.
        job: The kind of job, as an expression.
        hyperparameters: As an expression.
        metrics: Regular expressions by metric name.
        data: The file of each channel, and what writes it; empty where the image brings the data.
        more: The end of the README.
        before: Lines of the app before its workflow.
        builder: What builds the image.
        besides: Further files of the training code, which the image does not need.
    """

    folder: str
    names: tuple[str, ...]
    job: str
    hyperparameters: str
    metrics: dict[str, str]
    data: Mapping[str, tuple[str, Callable[[Path], None]]]
    more: str = ""
    before: str = ""
    builder: str = "from_asset"
    besides: tuple[str, ...] = ()


def write_app(kind: str, directory: Path) -> list[Path]:
    """Write the app of a kind, its training code and its data.

    Args:
        kind: A kind of ``APPS``.
        directory: Where to, created if needed.

    Returns:
        The files that were written, sorted.

    Raises:
        ValueError: There is no such kind.
        FileExistsError: A file of the app is there already; nothing is written.
    """
    if kind.replace("_", "-") not in APPS:
        raise ValueError(f"kind must be one of {', '.join(APPS)}, like 'heterogeneous', got {kind!r}")
    kind = kind.replace("_", "-")
    app = APPS[kind]
    stack = "".join(word.capitalize() for word in kind.split("-")) + "Training"
    names = {"S3Prefix", "TrainingBucket", "TrainingImage", "TrainingWorkflow", *app.names}
    parts = {"assets": "", "data": "", "channels": ""}
    if app.data:
        names.add("S3Channel")
        parts = {
            "assets": "from aws_cdk import aws_s3_assets as s3_assets\n",
            "data": "".join(
                f'{channel} = s3_assets.Asset(stack, "{channel.capitalize()}", path="data/{file}")\n'
                for channel, (file, _) in app.data.items()
            ),
            "channels": "    channels={\n"
            + "".join(
                f'        "{channel}": S3Channel({channel}.bucket, {channel}.s3_object_key),\n' for channel in app.data
            )
            + "    },\n",
        }
    texts = {
        "app.py": _APP.format(
            **parts,
            names="\n".join(f"    {name}," for name in sorted(names)),
            stack=stack,
            job=app.job,
            before=app.before,
            builder=app.builder,
            built=_BUILDERS[app.builder],
            folder=app.folder,
            hyperparameters=app.hyperparameters,
            metrics="\n".join(f'        "{name}": r"{regex}",' for name, regex in app.metrics.items()),
        ),
        "README.md": _README.format(stack=stack, folder=app.folder, more=app.more),
        **FILES,
    }
    check_new(directory, (*texts, "training_code", "data"))
    written = copy_training_code(app.folder, directory / "training_code", app.besides)
    written += write_files(directory, texts)
    for file, write in app.data.values():
        (directory / "data").mkdir(exist_ok=True)
        write(directory / "data" / file)
        written.append(directory / "data" / file)
    return sorted(written)


def write_adopted(source: str, directory: Path) -> list[Path]:
    """Write an app whose source is known.

    Args:
        source: Its app.py.
        directory: Where to, created if needed.

    Returns:
        The files that were written, sorted.

    Raises:
        FileExistsError: A file of the app is there already; nothing is written.
    """
    texts = {"app.py": source, "README.md": _ADOPTED, **FILES}
    check_new(directory, texts)
    return sorted(write_files(directory, texts))


def check_new(directory: Path, names: Iterable[str]) -> None:
    """Raise FileExistsError where a folder has one of the names."""
    for name in names:
        if (directory / name).exists():
            raise FileExistsError(
                f"directory must have no {name}, so that nothing is overwritten, like 'my_training', got {str(directory)!r}"
            )


def write_files(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files of a folder, which is created if needed; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text)
    return [directory / name for name in texts]


def write_spirals(file: Path) -> None:
    """1,000 points of two spirals: a task that no line between two halves of the plane solves."""
    rows = ["x,y,spiral"]
    for spiral, sign in ((0, 1), (1, -1)):
        for number in range(500):
            angle, radius = 3 * math.pi * number / 499, sign * 2 * number / 499
            x, y = radius * math.cos(angle), radius * math.sin(angle)
            rows.append(f"{x:.5f},{y:.5f},{spiral}")
    file.write_text("\n".join(rows) + "\n")


def _library() -> str:
    """Text that is on every machine with Python: modules of its standard library, 1 MB of them."""
    text = ""
    for module in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if len(text) > 1_000_000:
            break
        text += module.read_text(errors="replace") + "\n\n"
    return text


def _write_library(file: Path) -> None:
    file.write_text(_library())


def _write_tokens(file: Path) -> None:
    """The same text, of which each byte is a token, in NumPy's format 1.0 (NumPy's documentation, `numpy.lib.format`)."""
    tokens = _library().encode()
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(tokens)},), }}"
    header = (
        header.ljust(64 * -(-(10 + len(header) + 1) // 64) - 10 - 1) + "\n"
    )  # what precedes the data is 64 bytes n times
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + tokens)


def _write_llama(file: Path) -> None:
    """A Llama of 0.2 million parameters, whose vocabulary is the bytes (transformers' documentation, `LlamaConfig`)."""
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, **heads}
    file.write_text(json.dumps(llama, indent=2) + "\n")


_LOSS = {"loss": r"loss ([0-9.]+)"}
_CLASSIFIER_METRICS = {**_LOSS, "accuracy": r"accuracy ([0-9.]+)"}
_TEXT_METRICS = {**_LOSS, "tokens/s": r"tokens/s ([0-9.]+)"}

APPS = {
    "data-parallel": App(
        folder="data_parallel",
        names=("DataParallelJob", "InstanceGroup", "Torchrun"),
        job='DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun())',
        hyperparameters='{"epochs": 20}',
        metrics=_CLASSIFIER_METRICS,
        data={"points": ("spirals.csv", write_spirals)},
    ),
    "heterogeneous": App(
        folder="heterogeneous",
        names=("DataParallelJob", "HeterogeneousJob", "InstanceGroup", "Torchrun"),
        job="""HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
        train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
        train_group="dnn_group",
    )""",
        hyperparameters='{"epochs": 8, "batch-size": 64}',
        metrics={**_CLASSIFIER_METRICS, "samples/s": r"samples/s ([0-9.]+)"},
        data={},  # scikit-learn's digits
        more=_DIGITS,
    ),
    "compiled": App(
        folder="compiled",
        names=("CompiledJob", "InstanceGroup", "TorchCompile", "Torchrun"),
        job='CompiledJob(InstanceGroup("ml.g5.xlarge"), compiler=TorchCompile(), launcher=Torchrun())',
        hyperparameters='{"steps": 200, "batch-size": 16, "sequence": 128}',
        metrics=_TEXT_METRICS,
        data={"text": ("library.txt", _write_library)},
    ),
    "model-parallel": App(
        folder="model_parallel",
        names=("InstanceGroup", "ModelParallelJob", "NativeParallelism"),
        job='ModelParallelJob(InstanceGroup("ml.g5.12xlarge"), parallelism=NativeParallelism(data_shard=2, tensor=2))',
        hyperparameters='{"steps": 60, "checkpoint-every": 20}',
        metrics=_TEXT_METRICS,
        data={"text": ("library.py", _write_library)},
    ),
    "resnet-tensorflow": App(
        folder="heterogeneous/tensorflow/resnet",
        names=("DataParallelJob", "HeterogeneousJob", "InstanceGroup", "Mpi"),
        # In which neither Horovod nor mpirun is needed, as on a laptop.
        before='on_aws = app.node.try_get_context("horovod") == "true"\n',
        job="""HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.18xlarge", 2)},
        train=DataParallelJob(InstanceGroup("ml.p4d.24xlarge"), launcher=Mpi() if on_aws else None),
        train_group="dnn_group",
    )""",
        hyperparameters="""(
        {"steps": 5_000, "batch-size": 128} if on_aws else {"steps": 20, "batch-size": 8, "learning-rate": 0.001}
    )""",
        metrics={"loss": r"step \d+ loss ([0-9.]+)", "step_ms": r"step_ms ([0-9.]+)"},
        data={},
        more=_HOROVOD,
        builder="from_codebuild",
    ),
    "huggingface": App(
        folder="model_parallel/huggingface",
        names=("InstanceGroup", "ModelParallelJob", "NativeParallelism"),
        job='ModelParallelJob(InstanceGroup("ml.g5.12xlarge"), parallelism=NativeParallelism(data_shard=2, tensor=2))',
        hyperparameters='{"steps": 60, "context": 64, "learning-rate": 0.003, "checkpoint-every": 20}',
        metrics=_TEXT_METRICS,
        data={"model": ("config.json", _write_llama), "tokens": ("tokens-00000.npy", _write_tokens)},
        more=_OWN_MODEL,
        besides=("model_parallel/huggingface/prepare_tokens.py",),
    ),
}
