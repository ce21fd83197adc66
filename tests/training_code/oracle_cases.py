"""The oracle's cases: those that every change waits for, by the fact that each shows, and any number that are drawn."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

from oracle import Case, Outcome, Run


def draw(kind: str, number: int) -> Case:
    """The case of a number, of any ranks and arguments that the script takes."""
    return DRAWN[kind](random.Random(f"{kind} {number}"))


def schedule(chosen: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"learning-rate": chosen.choice([0.001, 0.01, 0.02])}
    if chosen.random() < 0.6:
        found |= {"warm-up": chosen.randrange(4), "least-rate": chosen.choice([0.0, 0.1, 0.5])}
    if chosen.random() < 0.4:
        found |= {"base-batch-size": chosen.choice([2, 4, 8]), "rate-rule": chosen.choice(["linear", "square-root"])}
    return found


def by_epochs(
    kind: str, chosen: random.Random, data: str, options: dict[str, Any], samples: int, least: int = 1
) -> Case:
    """A case of a script that counts epochs, of which two in three are interrupted."""
    named = {
        data: samples + -(-samples // 4) if kind == "heterogeneous" else samples
    }  # a fifth of the digits is held out

    def size(ranks: int) -> int:
        return min(chosen.randrange(least, 9), samples // ranks)

    ranks = chosen.randrange(1, 5)
    first = Run(ranks, {**options, "batch-size": size(ranks)})
    steps = options["epochs"] * -(-samples // (first.options["batch-size"] * ranks))
    if steps < 3 or chosen.random() < 0.33:
        return Case(kind, named, [first])
    stopped = dataclasses.replace(first, stop=chosen.randrange(1, steps - 1))
    ranks = chosen.choice([ranks, chosen.randrange(1, 5)])
    batch = first.options["batch-size"] if first.ranks == ranks and chosen.random() < 0.5 else size(ranks)
    options["learning-rate"] = chosen.choice([options["learning-rate"], 0.005])
    return Case(kind, named, [stopped, Run(ranks, {**options, "batch-size": batch})])


def draw_data_parallel(chosen: random.Random) -> Case:
    options = {"epochs": chosen.randrange(1, 4), "seed": chosen.randrange(100), **schedule(chosen)}
    return by_epochs("data_parallel", chosen, "points", options, chosen.randrange(9, 40))


def draw_heterogeneous(chosen: random.Random) -> Case:
    options = {"epochs": chosen.randrange(1, 3), "seed": chosen.randrange(100), "workers": 1, **schedule(chosen)}
    options |= {"checkpoint-every": chosen.choice([0, 2])} | ({"shard": True} if chosen.random() < 0.3 else {})
    return by_epochs("heterogeneous", chosen, "digits", options, chosen.randrange(16, 30), least=2)


def draw_images(chosen: random.Random) -> Case:
    options = {"epochs": chosen.randrange(1, 3), "seed": chosen.randrange(100), "workers": 1, **schedule(chosen)}
    options |= {"base-batch-size": chosen.choice([16, 64]), "least-rate": 0.0, "warm-up-epochs": 1, "classes": 5}
    options |= {"depth": 26, "width": 4, "size": 64, "precision": "fp32", "log-every": 1}
    options |= {"smoothing": chosen.choice([0.0, 0.1]), "weight-decay": chosen.choice([0.0, 1e-2])}
    return by_epochs("images", chosen, "images", options, chosen.randrange(16, 24), least=2)


def draw_compiled(chosen: random.Random) -> Case:
    data = {"texts": chosen.randrange(12, 40), "longest": 12}
    options = {"sequence": 12, "width": 16, "layers": 1, "heads": 2, "preprocessing-workers": 0, "log-every": 1}
    options |= {"seed": chosen.randrange(100), "steps": chosen.randrange(3, 9), **schedule(chosen)}
    options |= {"weight-decay": chosen.choice([0.0, 0.1]), "clip": chosen.choice([0.0, 0.3, 1.0])}
    options |= {"evaluate-every": chosen.choice([0, 2])}
    samples = data["texts"] - (1 + data["texts"] // 10 if options["evaluate-every"] else 0)

    def layout() -> tuple[int, dict[str, Any]]:
        ranks, microbatches = chosen.randrange(1, 5), chosen.choice([1, 2])
        size = chosen.randrange(1, samples // ranks // microbatches + 1) * microbatches
        return ranks, {"microbatches": microbatches, "batch-size": min(size, 4 * microbatches)}

    return by_steps("compiled", chosen, data, options, layout)


def draw_huggingface(chosen: random.Random) -> Case:
    model = chosen.choice(["llama", "qwen3", "gpt2", "gpt2"])
    context, files = 8, chosen.randrange(1, 3)
    tokens = chosen.randrange(140, 200)  # more than a batch
    data = {"model": model, "files": files, "tokens": tokens}
    options = {"context": context, "seed": chosen.randrange(100), "steps": chosen.randrange(3, 9), **schedule(chosen)}
    options |= {"weight-decay": chosen.choice([0.0, 0.1]), "clip": chosen.choice([0.0, 0.3, 1.0]), "log-every": 1}
    options |= {"warm-up": chosen.randrange(4), "least-rate": chosen.choice([0.1, 1.0])} | STEPPED
    options |= {"evaluate-every": chosen.choice([0, 2]), "loss-chunk": chosen.choice([0, 5, 1024])}

    def layout() -> tuple[int, dict[str, Any]]:
        ranks, microbatches = chosen.choice([1, 2, 4]), chosen.choice([1, 2])
        degrees: dict[str, Any] = {"microbatches": microbatches}
        if ranks > 1 and model == "gpt2" and chosen.random() < 0.6:
            degrees |= {"pipeline": 2, "microbatches": 2}
        elif ranks > 1 and model != "gpt2" and chosen.random() < 0.5:
            degrees |= {"tensor": 2}
        data_ranks = ranks // degrees.get("pipeline", 1) // degrees.get("tensor", 1)
        if data_ranks == 4 and chosen.random() < 0.5:
            degrees |= {"data-replicate": 2, "data-shard": 2}
        size = chosen.randrange(1, 3) * data_ranks * degrees["microbatches"]
        return ranks, {**degrees, "batch-size": size, "activation-checkpointing": chosen.random() < 0.3}

    return by_steps("huggingface", chosen, data, options, layout)


def draw_model_parallel(chosen: random.Random) -> Case:
    data = {"files": chosen.randrange(1, 4), "length": chosen.randrange(190, 230)}  # more than a batch
    length = data["files"] * data["length"]
    options = {
        "layers": 4,
        "width": 16,
        "heads": 4,
        "hidden": 32,
        "context": 8,
        "vocabulary": 128,
        "text-bytes": length,
    }
    options |= {"seed": chosen.randrange(100), "steps": chosen.randrange(3, 9), **schedule(chosen), **STEPPED}
    options |= {"weight-decay": chosen.choice([0.0, 0.1]), "clip": chosen.choice([0.0, 0.3, 1.0]), "log-every": 1}
    if chosen.random() < 0.4:
        options |= {"text-bytes": length - 33, "evaluate-every": 2}
    options |= {"loss-chunk": chosen.choice([0, 5, 1024]), "gradient-sync": chosen.choice(["each", "last"])}

    def layout() -> tuple[int, dict[str, Any]]:
        ranks = chosen.choice([1, 2, 3, 4])
        degrees: dict[str, Any] = {"microbatches": chosen.choice([1, 2, 3])}
        if ranks in (2, 4) and chosen.random() < 0.5:
            kind = chosen.choice(["1F1B", "GPipe", "Interleaved1F1B"])
            degrees |= {"pipeline": 2, "microbatches": 2, "schedule": kind}
        if ranks // degrees.get("pipeline", 1) in (2, 4) and chosen.random() < 0.5:
            degrees |= {"tensor": 2}
        data_ranks = ranks // degrees.get("pipeline", 1) // degrees.get("tensor", 1)
        if data_ranks == 4 and chosen.random() < 0.5:
            degrees |= {"data-replicate": 2, "data-shard": 2}
        degrees |= {"sharded": chosen.choice(["parameters", "optimizer"])}
        size = data_ranks * degrees["microbatches"] * (chosen.randrange(1, 3) if data_ranks < 4 else 1)
        return ranks, {**degrees, "batch-size": size, "activation-checkpointing": chosen.random() < 0.3}

    return by_steps("model_parallel", chosen, data, options, layout)


STEPPED = {"stop-check-every": 1, "checkpoint-every": 0}


def by_steps(kind: str, chosen: random.Random, data: Mapping[str, Any], options: dict[str, Any], layout: Any) -> Case:
    """A case of a script that counts steps, of which two in three are interrupted."""
    ranks, its = layout()
    first = Run(ranks, {**options, **its})
    if chosen.random() < 0.33:
        return Case(kind, data, [first])
    stopped = dataclasses.replace(first, stop=chosen.randrange(1, options["steps"] - 1))
    if chosen.random() < 0.7:
        ranks, its = layout()
    options["learning-rate"] = chosen.choice([options["learning-rate"], 0.005])
    options["weight-decay"] = chosen.choice([options["weight-decay"], 0.2])
    return Case(kind, data, [stopped, Run(ranks, {**options, **its})])


DRAWN: dict[str, Any] = {
    "data_parallel": draw_data_parallel,
    "heterogeneous": draw_heterogeneous,
    "images": draw_images,
    "compiled": draw_compiled,
    "model_parallel": draw_model_parallel,
    "huggingface": draw_huggingface,
}

# -- Facts ------------------------------------------------------------------------------------------------------------

POINTS = {"epochs": 2, "seed": 3, "learning-rate": 0.01, "batch-size": 4}
DIGITS = {"epochs": 2, "seed": 5, "workers": 1, "learning-rate": 0.01, "batch-size": 4}
PHOTOS = {"epochs": 2, "seed": 7, "workers": 1, "learning-rate": 0.1, "base-batch-size": 16, "least-rate": 0.0}
PHOTOS |= {"warm-up-epochs": 1, "classes": 5, "depth": 26, "width": 4, "size": 64, "precision": "fp32", "log-every": 1}
PHOTOS |= {"smoothing": 0.1, "weight-decay": 0.01, "batch-size": 4}
STEPS = {"steps": 4, "learning-rate": 0.01, "warm-up": 2, "least-rate": 0.1, "log-every": 1, "batch-size": 4}
STEPS |= {"weight-decay": 0.1}
TEXTS = {**STEPS, "sequence": 12, "width": 16, "layers": 1, "heads": 2, "preprocessing-workers": 0, "seed": 9}
BYTES = {**STEPS, **STEPPED, "layers": 2, "width": 16, "heads": 4, "hidden": 32, "context": 8, "vocabulary": 128}
BYTES |= {"text-bytes": 150, "seed": 11, "clip": 0.3}
TOKENS = {**STEPS, **STEPPED, "context": 8, "seed": 13, "clip": 0.3, "loss-chunk": 5}
DROPPING, STAGES = {**TOKENS, "steps": 3}, {"pipeline": 2, "microbatches": 2}


def points(*runs: Run) -> Case:
    return Case("data_parallel", {"points": 19}, runs)


def digits(*runs: Run) -> Case:
    return Case("heterogeneous", {"digits": 24}, runs)


def texts(*runs: Run) -> Case:
    return Case("compiled", {"texts": 21, "longest": 12}, runs)


def text(*runs: Run) -> Case:
    return Case("model_parallel", {"files": 2, "length": 90}, runs)


def model(name: str, *runs: Run) -> Case:
    return Case("huggingface", {"model": name, "files": 2, "tokens": 85}, runs)


QUICK = {
    "data parallel: the last samples of an epoch are read, and count as much as others": points(Run(2, {**POINTS})),
    "data parallel: 2 -> 1 ranks go on at the sample": points(Run(2, POINTS, stop=1), Run(1, {**POINTS, "epochs": 3})),
    "data parallel: another batch size reads each sample once": points(
        Run(2, POINTS, stop=4), Run(2, {**POINTS, "batch-size": 3})
    ),
    "data parallel: the rate is that of warm-up, cosine and the batch over all ranks": points(
        Run(2, POINTS | {"warm-up": 2, "least-rate": 0.1, "base-batch-size": 2, "rate-rule": "square-root"})
    ),
    "data parallel: the scale of an fp16 loss, which large gradients lower, is resumed": Case(
        "data_parallel",
        {"points": 19, "reach": 50},
        [
            Run(1, {**POINTS, "batch-size": 1, "epochs": 1, "precision": "fp16"}, stop=8),
            Run(1, {**POINTS, "batch-size": 1, "epochs": 1, "precision": "fp16"}),
        ],
    ),
    "data parallel: another seed": points(Run(2, {**POINTS, "seed": 4})),
    "heterogeneous: 2 -> 1 ranks go on at the sample": digits(
        Run(2, DIGITS, stop=2), Run(1, {**DIGITS, "batch-size": 5})
    ),
    "heterogeneous: sharded": digits(Run(2, {**DIGITS, "shard": True, "epochs": 1, "batch-size": 5})),
    "images: decay, label smoothing and another batch size": Case(
        "images", {"images": 17}, [Run(2, PHOTOS, stop=4), Run(1, {**PHOTOS, "batch-size": 5})]
    ),
    "compiled: the gradient of padded text is that of all tokens": texts(Run(2, TEXTS)),
    "compiled: 2 -> 1 ranks go on at the sample, and held-out text is not trained on": texts(
        Run(2, {**TEXTS, "microbatches": 2, "clip": 0.3, "evaluate-every": 2}, stop=2),
        Run(1, {**TEXTS, "clip": 0.3, "evaluate-every": 2, "steps": 6}),
    ),
    "model parallel: microbatches are averaged, and the last step is saved": text(
        Run(2, {**BYTES, "checkpoint-every": 3, "microbatches": 2}), Run(1, {**BYTES, "steps": 6, "batch-size": 3})
    ),
    "model parallel: the norm is that of all stages": text(Run(2, {**BYTES, **STAGES})),
    "model parallel: the command line's --weight-decay holds after a resume": text(
        Run(2, {**BYTES, "tensor": 2}, stop=1), Run(2, {**BYTES, "tensor": 2, "weight-decay": 0.5, "loss-chunk": 5})
    ),
    "model parallel: an evaluation is of all held-out text": text(
        Run(2, {**BYTES, "text-bytes": 115, "evaluate-every": 2})
    ),
    "Hugging Face: another batch size reads each sequence once": model(
        "qwen3", Run(2, {**TOKENS, "microbatches": 2}, stop=2), Run(1, {**TOKENS, "batch-size": 3, "evaluate-every": 4})
    ),
    "Hugging Face: the last step is saved, and the command line's --weight-decay holds after a resume": model(
        "llama",
        Run(2, {**TOKENS, "tensor": 2, "microbatches": 2, "checkpoint-every": 3}),
        Run(2, {**TOKENS, "tensor": 2, "weight-decay": 0.5, "steps": 6}),
    ),
    "Hugging Face: dropout": model("gpt2", Run(2, DROPPING)),
    "Hugging Face: dropout, another seed": model("gpt2", Run(2, {**DROPPING, "seed": 14})),
    "Hugging Face: dropout, resumed": model("gpt2", Run(2, DROPPING, stop=1), Run(2, DROPPING)),
    "Hugging Face: dropout in stages": model("gpt2", Run(2, {**DROPPING, **STAGES})),
    "Hugging Face: dropout in stages, resumed": model(
        "gpt2", Run(2, {**DROPPING, **STAGES}, stop=1), Run(2, {**DROPPING, **STAGES})
    ),
}


# What inductor compiles is not watched, and has the inputs of a twin that is not compiled.
INDUCTOR = {
    "compiled": {
        "not compiled": texts(Run(2, {**TEXTS, "microbatches": 2, "clip": 0.3})),
        "compiled": dataclasses.replace(
            texts(Run(2, {**TEXTS, "microbatches": 2, "clip": 0.3, "compiler": "inductor"}, watched=False)),
            twin="not compiled",
        ),
    },
    "model parallel": {
        "not compiled": text(Run(2, {**BYTES, "microbatches": 2})),
        "compiled": dataclasses.replace(
            text(Run(2, {**BYTES, "microbatches": 2, "compiler": "inductor"}, watched=False)), twin="not compiled"
        ),
    },
}


def between(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Where cases that differ in one thing do not differ as they should."""
    found = []
    for one, other in OF_SEEDS:
        if {one, other} <= outcomes.keys():
            if outcomes[one].read[:19] == outcomes[other].read[:19]:
                found.append(f"order: of {one!r} and of another seed")
            dropped = [
                {digest for step in outcomes[name].dropped for digest in step if digest} for name in (one, other)
            ]
            if dropped[0] & dropped[1]:
                found.append(f"dropout: of {one!r} and of another seed")
    for one, other in OF_RESUMES:
        if {one, other} <= outcomes.keys():
            whole, resumed = outcomes[one], outcomes[other]
            if whole.read != resumed.read:
                found.append(f"order: of {one!r} and of a resumed training")
            if whole.dropped != resumed.dropped:
                found.append(f"dropout: of {one!r} and of a resumed training")
    return found


OF_SEEDS = [
    (
        "data parallel: the last samples of an epoch are read, and count as much as others",
        "data parallel: another seed",
    ),
    ("Hugging Face: dropout", "Hugging Face: dropout, another seed"),
]
OF_RESUMES = [(f"Hugging Face: {name}", f"Hugging Face: {name}, resumed") for name in ("dropout", "dropout in stages")]
