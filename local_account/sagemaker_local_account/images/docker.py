"""The stand-in `docker`, the value of CDK_DOCKER: the commands that the CDK CLI uses, without a container engine.

It supports `login`, `logout`, `build`, `inspect`, `images`, `tag`, `push` and `version`, with the options that the CDK CLI uses;
others are rejected by name. As with Docker, pulls from and pushes to an ECR registry require a login; ECR's public gallery does
not.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.image_names import ACCOUNT_ID, ECR_REGISTRY, Reference
from sagemaker_local_account.images.base_images import AWS_ACCOUNTS, PUBLIC_REGISTRY
from sagemaker_local_account.images.docker_logins import DockerLogins
from sagemaker_local_account.images.image_store import ImageError, ImageStore, own_reference

# Options of `docker build` with a value and without effect: there is neither a layer cache nor a network.
_IGNORED_WITH_VALUE = ("--cache-from", "--cache-to", "--network", "--progress", "--provenance", "--sbom")
_IGNORED = ("--no-cache", "--pull", "--load", "--force-rm", "--rm")
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns Docker's exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    config: Path | None = None
    while given[:1] == ["--config"]:  # used by the CDK CLI for credentials of other registries
        config, given = Path(*given[1:2]), given[2:]
    try:
        return _run(given, config)
    except ImageError as error:
        print(f"docker (the local account's): {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not atomic_files.is_disk_full(error):
            raise
        print(f"docker (the local account's): the disk of {_state()} is full: {error}", file=sys.stderr)
        return 1


def _run(given: list[str], config: Path | None) -> int:
    match given:
        case ["--version" | "-v" | "version"]:
            print("Docker version 0, the local account's stand-in")
        case ["login", *options]:
            _login(options, _logins(config))
        case ["logout", registry]:
            _logins(config).remove(registry)
            print(f"Removing login credentials for {registry}")
        case ["buildx", "ls"]:
            print("NAME/NODE  DRIVER/ENDPOINT  STATUS   PLATFORMS\ndefault *  local account    running  linux/amd64")
        case ["build", *options] | ["buildx", "build", *options]:
            _build(options, _logins(config))
        case ["inspect", name] | ["image", "inspect", name]:
            return _inspect(name)
        case ["images", *options]:
            _images(options)
        case ["tag", source, target]:
            _store().tag(source, target)
        case ["push", name]:
            _logins(config).check(own_reference(name))
            _push(name)
        case ["inspect" | "tag" | "push" as command, *_]:
            raise ImageError(
                f"{command}: these arguments are not supported by the local account: {' '.join(given[1:])!r}"
            )
        case _:
            known = "build, images, inspect, login, logout, push, tag, version"
            raise ImageError(
                f"command {' '.join(given[:1])!r} is not supported by the local account; it supports {known}"
            )
    return 0


def _state() -> Path:
    state = os.environ.get("SAGEMAKER_LOCAL_ACCOUNT_STATE")
    if not state:
        raise ImageError("SAGEMAKER_LOCAL_ACCOUNT_STATE must name the account's folder, as `local-account run` sets it")
    return Path(state)


def _logins(config: Path | None) -> DockerLogins:
    return DockerLogins(config or _state() / "docker")


def _store() -> ImageStore:
    return ImageStore(_state())


def _login(options: list[str], logins: DockerLogins) -> None:
    given, places = _options("login", options, with_value=("--username", "-u"), without=("--password-stdin",))
    registry = (places[-1] if places else "docker.io").removeprefix("https://").rstrip("/")
    match = ECR_REGISTRY.fullmatch(registry)
    # AWS's containers are identified by name, without requests to their registry.
    if registry != PUBLIC_REGISTRY and (not match or match["account"] not in AWS_ACCOUNTS | {ACCOUNT_ID}):
        raise ImageError(
            f"login must be to the account's own registry or one of AWS's containers, "
            f"like {ACCOUNT_ID}.dkr.ecr.us-east-1.amazonaws.com, got {registry!r}"
        )
    if ("--password-stdin", "") not in given or not sys.stdin.read().strip():
        raise ImageError("login must get the password by --password-stdin")
    logins.add(registry)
    print("Login Succeeded")


def _inspect(name: str) -> int:
    image = _store().inspect(name)
    if image is None:
        print("[]")
        print(f"Error: No such object: {name}", file=sys.stderr)
        return 1
    config = {"Cmd": image.cmd, "Entrypoint": image.entrypoint, "WorkingDir": image.workdir}
    config |= {"Env": [f"{key}={value}" for key, value in image.env.items()]}
    described = {"Id": f"sha256:{image.id}", "Os": "linux", "Architecture": "amd64", "Config": config}
    print(json.dumps([described], indent=4))
    return 0


def _images(options: list[str]) -> None:
    """Supports the CDK CLI's options: `--format {{.Repository}}:{{.Tag}} --filter reference=*/*:TAG`."""
    pattern = "*"
    for option, value in _options("images", options, with_value=("--format", "--filter"))[0]:
        if option == "--format" and value != "{{.Repository}}:{{.Tag}}":
            raise ImageError(f"images: --format {value} is not supported by the local account")
        if option == "--filter":
            key, _, pattern = value.partition("=")
            if key != "reference":
                raise ImageError(f"images: --filter {value} is not supported by the local account")
    for name in _store().names():
        if fnmatch.fnmatchcase(name, pattern):
            print(name)


def _build(options: list[str], logins: DockerLogins) -> None:
    tags: list[str] = []
    build_args: dict[str, str] = {}
    values = {"--file": "", "--target": "", "--platform": ""}
    quiet = False
    given, contexts = _options(
        "build",
        options,
        with_value=(
            "--tag",
            "-t",
            "--build-arg",
            "--file",
            "-f",
            "--target",
            "--platform",
            "--output",
            *_IGNORED_WITH_VALUE,
        ),
        without=("--quiet", "-q", *_IGNORED),
    )
    for option, value in given:
        if option in ("--tag", "-t"):
            tags.append(value)
        elif option == "--build-arg":
            key, equals, argument = value.partition("=")
            build_args[key] = argument if equals else os.environ.get(key, "")
        elif option in ("--file", "-f"):
            values["--file"] = value
        elif option in values:
            values[option] = value
        elif option == "--output" and value.partition(",")[0] not in ("type=docker", "type=image"):
            raise ImageError(f"build: --output must be type=docker, got {value!r}")
        elif option == "--output":
            tags += [part.removeprefix("name=") for part in value.split(",") if part.startswith("name=")]
        quiet = quiet or option in ("--quiet", "-q")
    if len(contexts) != 1 or not Path(contexts[0]).is_dir():
        raise ImageError(f"build: must have one folder as its context, like '.', got {' '.join(contexts)!r}")
    context = Path(contexts[0]).absolute()

    def report(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    image = _store().build(
        context,
        Path(values["--file"]).absolute() if values["--file"] else context / "Dockerfile",
        tags,
        build_args,
        values["--target"] or None,
        values["--platform"] or None,
        pull=logins.check,
        step=report,
        note=lambda note: report(f"  note: {note}"),
    )
    print(f"sha256:{image.id}")


def _options(
    command: str, words: list[str], *, with_value: Sequence[str], without: Sequence[str] = ()
) -> tuple[list[tuple[str, str]], list[str]]:
    """The options and the arguments of a command; raises ``ImageError`` for an unknown option."""
    found: list[tuple[str, str]] = []
    others: list[str] = []
    rest: Iterator[str] = iter(words)
    for word in rest:
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-"):
            others.append(word)
        elif option in with_value:
            found.append((option, value if equals else next(rest, "")))
        elif word in without:
            found.append((word, ""))
        else:
            raise ImageError(f"{command}: option {option} is not supported by the local account")
    return found, others


def _push(name: str) -> None:
    id = _store().push(name, _register)
    print(f"{name}: pushed sha256:{id}")


def _register(id: str, name: Reference) -> str:
    """Puts an image's manifest into the account's ECR, where the CDK CLI looks for it; returns its digest."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if "AWS_ENDPOINT_URL" not in os.environ:
        raise ImageError("push: AWS_ENDPOINT_URL must name the account's endpoint, as `local-account run` sets it")
    config = {"mediaType": _CONFIG, "size": 0, "digest": f"sha256:{id}"}
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": []}
    ecr = boto3.client("ecr", region_name=name.region_of(ACCOUNT_ID))
    try:
        # The first call of a push, which checks the permission to push and that the repository exists.
        ecr.batch_check_layer_availability(repositoryName=name.repository, layerDigests=[f"sha256:{id}"])
        try:
            image = ecr.put_image(
                repositoryName=name.repository, imageTag=name.tag, imageManifest=json.dumps(manifest)
            )["image"]
        except ecr.exceptions.ImageAlreadyExistsException:
            # The same image, or, in a repository with immutable tags, another image with this tag.
            [image] = ecr.batch_get_image(repositoryName=name.repository, imageIds=[{"imageTag": name.tag}])["images"]
    except (BotoCoreError, ClientError) as error:
        raise ImageError(f"push to {name}: {error}") from None
    if json.loads(image["imageManifest"]) != manifest:
        raise ImageError(f"push to {name}: the repository's tags are immutable, and another image has this tag")
    return str(image["imageId"]["imageDigest"])


if __name__ == "__main__":
    sys.exit(main())
