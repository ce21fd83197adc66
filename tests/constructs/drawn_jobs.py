"""Hypothesis's strategies for what a user may say of a job: recipes of values, which a test makes inside its own `try`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from hypothesis import strategies as st
from whole_requests import (
    BUCKET,
    EFS,
    FUNCTION,
    KEY,
    LUSTRE,
    NETWORK,
    PLAN,
    RULES_IMAGE,
    TRACKING_SERVER,
    key_at,
    network_of,
    size_of,
)

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    HeterogeneousJob,
    InstanceGroup,
    Mlflow,
    ModelParallelJob,
    Mpi,
    MultiWorkerMirrored,
    NativeParallelism,
    Neuron,
    ParameterServer,
    PrivateRegistry,
    Profiler,
    PyTorchXla,
    Ray,
    S3Channel,
    S3Prefix,
    SmDdp,
    SmpV1,
    SmpV2,
    Spot,
    TensorBoard,
    TensorFlowXla,
    TorchCompile,
    Torchrun,
    TorchXla,
    TrainingCompiler,
    UltraServers,
    WarmPool,
)

TEXT_TOKEN = cdk.Token.as_string({"Ref": "Text"})
NUMBER_TOKEN = cdk.Token.as_number({"Ref": "Number"})
WORD = st.text("abcXYZ019", min_size=1, max_size=8)
NAMES = st.from_regex(r"[a-zA-Z0-9](-{0,2}[a-zA-Z0-9]){0,9}", fullmatch=True)
PATHS = st.sampled_from(["/opt/ml/a", "/", "/opt/ml/output/b"])
# What no prop of text, number or truth takes, or takes only by chance.
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**33),
    # Numbers that begin with these bytes are tokens in the CDK's encoding (aws-cdk-lib/core/lib/private/encoding.ts).
    st.floats().filter(lambda number: struct.pack(">d", number)[:2] != b"\xfb\xff"),
    st.text(max_size=8),
    st.sampled_from(["", "x" * 2600, "a b", "/", "aws:", "\n", "é"]),
    st.sampled_from([TEXT_TOKEN, NUMBER_TOKEN]),
    st.sampled_from([TEXT_TOKEN, NUMBER_TOKEN]),
)


@dataclass(frozen=True)
class Recipe:
    """A value not made yet, since making it may be what is refused."""

    of: Callable[..., Any]
    given: Mapping[str, Any]


def made(value: Any) -> Any:
    """``value`` with the recipes in it followed."""
    if isinstance(value, Recipe):
        return value.of(**{name: made(inner) for name, inner in value.given.items()})
    if isinstance(value, dict):
        return {name: made(inner) for name, inner in value.items()}
    return [made(inner) for inner in value] if isinstance(value, list) else value


class Surface:
    """Strategies for each prop: what it takes and, if ``wild``, mixed with what it does not."""

    def __init__(self, *, wild: bool) -> None:
        self.wild = wild
        self.place = self.recipe(S3Prefix, {"bucket": st.just(BUCKET), "prefix": st.sampled_from(["", "a/", "b/c"])})

    def either(self, takes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        # One in four, so that most of a wild request is what the rest of it is tried against.
        return st.integers(0, 7).flatmap(lambda n: JUNK if n in (2, 5) else takes) if self.wild else takes

    def recipe(self, of: Callable[..., Any], needs: dict[str, Any], takes: dict[str, Any] | None = None) -> Any:
        given = {name: self.either(strategy) if name not in _OBJECTS else strategy for name, strategy in needs.items()}
        may = {
            name: self.either(strategy) if name not in _OBJECTS else strategy
            for name, strategy in (takes or {}).items()
        }
        return st.fixed_dictionaries(given, optional=may).map(lambda kwargs: Recipe(of, kwargs))

    def texts(self, keys: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[Any]:
        return st.dictionaries(keys, self.either(WORD), max_size=most)

    def jobs(self) -> st.SearchStrategy[Any]:
        types = st.sampled_from(
            ["ml.c5.xlarge", "ml.g5.12xlarge", "ml.p6e-gb200.36xlarge", "ml.p7.48xlarge", "ml.m5.large"]
        )
        group = self.recipe(InstanceGroup, {"instance_type": types, "instance_count": st.integers(1, 20)})
        launcher = st.sampled_from([None, Torchrun(), Torchrun(2)])
        plain = self.recipe(DataParallelJob, {"group": group, "launcher": launcher})
        others = st.dictionaries(st.sampled_from(["data", "more"]), group, min_size=1, max_size=2)
        grouped = self.recipe(HeterogeneousJob, {"groups": others, "train": plain, "train_group": st.just("dnn")})
        return st.one_of(plain, grouped)

    def kinds(self) -> st.SearchStrategy[Any]:
        """Every kind of job, with degrees, launchers and compilers that fit together, or not."""
        types = ["ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.trn1.32xlarge", "ml.c5.xlarge"]
        group = self.recipe(
            InstanceGroup, {"instance_type": st.sampled_from(types), "instance_count": st.sampled_from([1, 2])}
        )
        launchers = [
            None,
            Torchrun(),
            Torchrun(2),
            Mpi(),
            Mpi(8),
            SmDdp(),
            MultiWorkerMirrored(),
            ParameterServer(),
            PyTorchXla(),
            Ray(),
        ]
        compilers: list[Any] = [
            None,
            TorchCompile(),
            TorchXla(),
            TensorFlowXla(),
            Neuron(S3Prefix(BUCKET)),
            TrainingCompiler(),
        ]
        degree = st.sampled_from([1, 1, 2, 4, 8])
        degrees = {"data_shard": degree, "tensor": degree, "pipeline": degree, "data_replicate": degree}
        precision = st.sampled_from(["fp32", "bf16", "fp16"])
        how = {"microbatches": degree, "precision": precision, "cpu_offload": st.booleans()}
        v1 = {"pipeline_parallel_degree": degree, "ddp": st.booleans(), "tensor_parallel_degree": degree}
        layouts = st.one_of(
            self.recipe(NativeParallelism, {}, {**degrees, **how}),
            self.recipe(SmpV2, {}, {"hybrid_shard_degree": degree, "tensor_parallel_degree": degree}),
            self.recipe(SmpV1, {"parameters": st.fixed_dictionaries({}, optional=v1)}, {}),
        )
        compiler = {"compiler": st.sampled_from(compilers)}
        launched = {**compiler, "launcher": st.sampled_from(launchers)}
        train = st.one_of(
            self.recipe(DataParallelJob, {"group": group}, launched),
            self.recipe(CompiledJob, {"group": group, **compiler}, {"launcher": st.sampled_from(launchers)}),
            self.recipe(ModelParallelJob, {"group": group, "parallelism": layouts}, compiler),
        )
        beside = {"groups": st.dictionaries(st.just("data"), group, min_size=1), "train_group": st.just("dnn")}
        return st.one_of(train, train, self.recipe(HeterogeneousJob, {**beside, "train": train}))

    def channels(self) -> st.SearchStrategy[Any]:
        modes = st.sampled_from(["File", "FastFile", "Pipe"])
        simple = {
            "distribution": st.sampled_from(["FullyReplicated", "ShardedByS3Key"]),
            "content_type": WORD,
            "shuffle_seed": st.integers(-5, 5),
            "accept_eula": st.booleans(),
        }
        place = {"bucket": st.just(BUCKET), "prefix": st.sampled_from(["a/", "train.manifest"])}
        piped = {**simple, "compression": st.just("Gzip"), "record_wrapper": st.just("RecordIO")}
        pipe = {**place, "input_mode": st.just("Pipe")}
        augmented = {
            "prefix": st.just("train.manifest"),
            "data_type": st.just("AugmentedManifestFile"),
            "attribute_names": st.lists(WORD, min_size=1, max_size=3),
        }
        listed = {"prefix": st.just("train.manifest"), "data_type": st.just("ManifestFile")}
        kinds = [
            self.recipe(S3Channel, place, {**simple, "input_mode": modes}),
            self.recipe(S3Channel, pipe, piped),
            self.recipe(S3Channel, {**pipe, **augmented, "objects": self.place}, piped),
            self.recipe(S3Channel, {**place, **listed, "objects": self.place}, simple),
            self.recipe(
                FsxLustreChannel, {"file_system": st.just(LUSTRE)}, {"directory": PATHS, "read_only": st.booleans()}
            ),
            self.recipe(EfsChannel, {"file_system": st.just(EFS)}, {"directory": PATHS, "content_type": WORD}),
        ]
        if self.wild:
            grouped = {"groups": st.lists(st.sampled_from(["data", "dnn", "x"]), max_size=2)}
            kinds.append(self.recipe(S3Channel, place, {**piped, **grouped, "input_mode": modes}))
        names = st.one_of(WORD, st.just("a b")) if self.wild else WORD
        return st.dictionaries(names, st.one_of(kinds), max_size=3)

    def watchers(self) -> dict[str, st.SearchStrategy[Any]]:
        # Names by a number, since a rule's is to be its own.
        rules = st.lists(WORD, max_size=2, unique=not self.wild).map(
            lambda names: [
                Recipe(DebuggerRule, {"name": f"{n}{i}", "evaluator_image": RULES_IMAGE}) for i, n in enumerate(names)
            ]
        )
        local = {"local_path": PATHS}
        hook = {"collections": st.dictionaries(WORD, self.texts(WORD), max_size=2), "hook_parameters": self.texts(WORD)}
        sampled = {"interval_milliseconds": st.sampled_from([100, 500, 60_000]), "parameters": self.texts(WORD)}
        profilers = self.recipe(
            Profiler, {}, {**sampled, "output": self.place, **({"rules": rules} if self.wild else {})}
        )
        return {
            "debugger": self.recipe(Debugger, {"output": self.place}, {**local, **hook, "rules": rules}),
            "profiler": st.one_of(profilers, st.just(Recipe(Profiler, {"disable": True}))),
            "tensorboard": self.recipe(TensorBoard, {"output": self.place}, local),
            "experiment": self.recipe(Experiment, {"experiment_name": NAMES}, {"trial_name": NAMES, "run_name": NAMES}),
            "mlflow": self.recipe(Mlflow, {"resource_arn": st.just(TRACKING_SERVER)}, {"run_name": WORD}),
        }

    def capacity(self) -> dict[str, st.SearchStrategy[Any]]:
        """What may be said together of where machines come from; anything at once if wild."""
        spot = self.recipe(
            Spot, {"checkpoints": self.place, "max_wait": st.integers(3600, 9999)}, {"local_path": PATHS}
        )
        return {
            "spot": spot,
            "warm_pool": self.recipe(WarmPool, {"keep_alive": st.integers(1, 21_600)}),
            "training_plan": self.either(st.just(PLAN)),
            "ultra_servers": self.recipe(UltraServers, {"counts": st.just([1])}, {"multiple_jobs": st.booleans()}),
        }

    def props(self) -> st.SearchStrategy[dict[str, Any]]:
        flags = [
            "network_isolation",
            "inter_container_encryption",
            "infra_check",
            "session_tag_chaining",
            "remote_debug",
        ]
        commands = st.lists(self.either(WORD), min_size=1, max_size=3)
        optional: dict[str, st.SearchStrategy[Any]] = {
            "hyperparameters": st.dictionaries(
                WORD, st.one_of(st.integers(), WORD, st.booleans(), JUNK if self.wild else WORD)
            ),
            "environment": self.texts(st.sampled_from(["A", "B_1", "1C"] if self.wild else ["A", "B_1"])),
            "metric_definitions": st.dictionaries(
                WORD, self.either(st.sampled_from(["(a)", "x=([0-9.]+)"])), max_size=3
            ),
            "metrics_time_series": self.either(st.booleans()),
            "container_entrypoint": self.either(commands),
            "container_arguments": self.either(commands),
            "private_registry": st.sampled_from([PrivateRegistry(), PrivateRegistry(FUNCTION)]),
            "output_key": self.either(st.just(key_at(KEY))),
            "output_compression": self.either(st.sampled_from(["GZIP", "NONE"])),
            "volume_size": self.either(st.integers(1, 16_384).map(size_of)),
            "volume_key": self.either(st.just(key_at(KEY))),
            "max_pending": self.either(st.integers(1800, 2_419_200)),
            "maximum_retry_attempts": self.either(st.integers(1, 30)),
            "max_runtime": self.either(st.integers(60, 3600)),
            "checkpoints": self.place,
            "channels": self.channels(),
            "tags": self.texts(WORD),
            **dict.fromkeys(flags, self.either(st.booleans())),
            **self.watchers(),
        }
        if self.wild:
            return self._few({**optional, **self.capacity(), "network": st.just(network_of(NETWORK))})
        always = {"job": self.jobs(), "network": st.just(network_of(NETWORK))}
        capacity = [st.fixed_dictionaries({name: value}) for name, value in self.capacity().items()]
        all_of_one_kind = st.fixed_dictionaries(always, optional=optional)
        return st.tuples(all_of_one_kind, st.one_of(st.just({}), *capacity)).map(lambda parts: {**parts[0], **parts[1]})

    def _few(self, optional: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
        """A few props each, since what is wrong in one would hide all the others behind it."""
        names = st.sets(st.sampled_from(sorted(optional)), min_size=1, max_size=5)
        tame = Surface(wild=False).jobs()
        jobs = st.one_of(tame, tame, tame, self.jobs())
        return names.flatmap(
            lambda chosen: st.fixed_dictionaries({"job": jobs, **{name: optional[name] for name in sorted(chosen)}})
        )


# Props that hold a value or a construct, for which nothing else stands in any type checker's eyes.
_OBJECTS = frozenset(
    (
        *("bucket", "checkpoints", "collections", "counts", "file_system", "group", "groups", "hook_parameters"),
        *("compiler", "launcher", "objects", "output", "parallelism", "parameters", "rules", "train"),
    )
)
