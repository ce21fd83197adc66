"""The stand-in `docker` that CDK_DOCKER names: what the CDK CLI needs of Docker, without an engine.

It knows `login`, `build`, `inspect`, `images`, `tag`, `push` and `version`, with the options that the CDK CLI uses; anything
else it refuses by name.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .images import Image, ImageError, ImageStore, own_reference
from .references import ACCOUNT_ID, ECR_REGISTRY

# Options of `docker build` with a value that has no meaning here: there is neither a cache of layers nor a daemon.
_IGNORED_WITH_VALUE = ("--cache-from", "--cache-to", "--network", "--progress", "--output", "--provenance", "--sbom")
_IGNORED = ("--no-cache", "--pull", "--load", "--quiet", "-q", "--force-rm", "--rm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is Docker's."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--config"]:
        given = given[2:]
    try:
        return _run(given)
    except ImageError as error:
        print(f"docker (the local account's): {error}", file=sys.stderr)
        return 1


def _run(given: list[str]) -> int:
    state = os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_STATE")
    if not state:
        raise ImageError("SAGEMAKER_LOCAL_ACCOUNT_STATE must name the account's folder, as `local-account run` sets it")
    store = ImageStore(Path(state))
    match given:
        case ["--version" | "version", *_]:
            print("Docker version 0.0.0, the local account's stand-in")
        case ["login", *options]:
            _login(options)
        case ["inspect", name] | ["image", "inspect", name]:
            return _inspect(store, name)
        case ["images", *options]:
            pattern = next((word.partition("=")[2] for word in options if word.startswith("reference=")), "*")
            print("\n".join(name for name in store.names() if fnmatch.fnmatch(name, pattern)))
        case ["build", *options] | ["buildx", "build", *options]:
            _build(store, options)
        case ["tag", source, target]:
            store.tag(source, target)
        case ["push", name] | ["push", "--quiet", name]:
            _push(store, name)
        case _:
            raise ImageError(
                f"{' '.join(given[:1]) or 'no command'} is not known; known are build, images, inspect, login, push, tag"
            )
    return 0


def _login(options: list[str]) -> None:
    password = sys.stdin.read() if "--password-stdin" in options else ""
    registry = options[-1].removeprefix("https://").rstrip("/")
    match = ECR_REGISTRY.fullmatch(registry)
    if not match or match["account"] != ACCOUNT_ID or not password:
        raise ImageError(
            f"login must be to the account's own registry, like {ACCOUNT_ID}.dkr.ecr.us-east-1.amazonaws.com, got {registry!r}"
        )
    print("Login Succeeded")


def _inspect(store: ImageStore, name: str) -> int:
    image = store.inspect(name)
    if image is None:
        print("[]")
        print(f"Error: No such object: {name}", file=sys.stderr)
        return 1
    config = {"Cmd": image.cmd, "Entrypoint": image.entrypoint, "WorkingDir": image.workdir}
    config |= {"Env": [f"{key}={value}" for key, value in image.env.items()]}
    print(
        json.dumps([{"Id": f"sha256:{image.id}", "Os": "linux", "Architecture": "amd64", "Config": config}], indent=4)
    )
    return 0


def _build(store: ImageStore, options: list[str]) -> None:
    tags: list[str] = []
    build_args: dict[str, str] = {}
    values: dict[str, str] = {}
    contexts: list[str] = []
    rest = iter(options)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            contexts.append(word)
        elif option in _IGNORED:
            continue
        elif option in ("--tag", "-t"):
            tags.append(value if equals else next(rest, ""))
        elif option == "--build-arg":
            key, given, argument = (value if equals else next(rest, "")).partition("=")
            build_args[key] = argument if given else os.environ.get(key, "")
        elif option in ("--file", "-f", "--target", "--platform"):
            values[option.replace("-f", "--file") if option == "-f" else option] = value if equals else next(rest, "")
        elif option in _IGNORED_WITH_VALUE:
            value = value if equals else next(rest, "")
        else:
            raise ImageError(f"build: option {option} is not known to the local account")
    if len(contexts) != 1 or not Path(contexts[0]).is_dir():
        raise ImageError(f"build: must have one folder as its context, like '.', got {contexts}")
    context = Path(contexts[0]).absolute()
    image = store.build(
        context,
        Path(context, values.get("--file", "Dockerfile")),
        tags,
        build_args,
        values.get("--target"),
        values.get("--platform"),
        say=lambda note: print(note, file=sys.stderr, flush=True),
    )
    print(f"sha256:{image.id}")


def _push(store: ImageStore, name: str) -> None:
    image = store.push(name)
    found = own_reference(name)
    assert found is not None
    _register(image, found.repository, found.tag, found.region_of(ACCOUNT_ID) or "us-east-1")
    print(f"{found.tag}: digest: sha256:{image.id}")


def _register(image: Image, repository: str, tag: str, region: str) -> None:
    """Make the account's ECR know the image, so that the CDK CLI finds it there the next time."""
    import boto3
    from botocore.exceptions import ClientError

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": 0,
            "digest": f"sha256:{image.id}",
        },
        "layers": [],
    }
    ecr = boto3.client("ecr", region_name=region)
    try:
        ecr.put_image(repositoryName=repository, imageTag=tag, imageManifest=json.dumps(manifest))
    except ecr.exceptions.ImageAlreadyExistsException:
        pass
    except ClientError as error:
        raise ImageError(f"push to {repository}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
