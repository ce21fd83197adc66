from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Builds

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def test_a_file_goes_where_copy_says(builds: Builds):
    builds.file("train.py")
    assert builds.files("COPY train.py /opt/ml/code/") == {"/opt/ml/code/train.py": "this is train.py"}


def test_a_file_can_get_another_name(builds: Builds):
    builds.file("a.py")
    assert list(builds.files("COPY a.py /opt/train.py")) == ["/opt/train.py"]


def test_a_folders_content_is_copied_without_the_folder(builds: Builds):
    builds.file("code/train.py")
    builds.file("code/inner/data.py")
    assert sorted(builds.files("COPY code /opt")) == ["/opt/inner/data.py", "/opt/train.py"]


def test_a_file_goes_into_a_folder_that_the_base_has(builds: Builds):
    builds.file("start")
    assert list(builds.files("COPY start /usr/bin")) == ["/usr/bin/start"]


def test_relative_targets_are_under_workdir(builds: Builds):
    builds.file("train.py")
    assert list(builds.files("WORKDIR /opt", "WORKDIR ml/code", "COPY train.py .")) == ["/opt/ml/code/train.py"]


def test_patterns_name_files(builds: Builds):
    for name in ("a.py", "b.py", "c.txt"):
        builds.file(name)
    assert sorted(builds.files("COPY *.py /opt/")) == ["/opt/a.py", "/opt/b.py"]


def test_what_dockerignore_names_is_left_out(builds: Builds):
    for path in (".dockerignore", "code/train.py", "code/train.pyc", "secret/key", "secret/shared"):
        builds.file(path, "**/*.pyc\nsecret\n!secret/shared\n.dockerignore" if path == ".dockerignore" else "")
    assert sorted(builds.files("COPY . /opt")) == ["/opt/code/train.py", "/opt/secret/shared"]


def test_a_file_that_dockerignore_leaves_out_cannot_be_copied(builds: Builds):
    builds.file("key")
    builds.file(".dockerignore", "key")
    message = "Dockerfile:2: COPY: no file 'key' is in the build's context: it is excluded by .dockerignore"
    assert builds.refused("COPY key /opt/") == message


def test_a_source_that_is_missing_is_refused_by_its_line(builds: Builds):
    message = "Dockerfile:3: COPY: no file 'train.py' is in the build's context"
    assert builds.refused("", "COPY train.py /opt/") == message


def test_a_source_cannot_be_above_the_context(builds: Builds):
    builds.file("../outside")
    assert "no file '../outside' is in the build's context" in builds.refused("COPY ../outside /opt/")


def test_add_unpacks_an_archive(builds: Builds):
    with tarfile.open(builds.context / "data.tar.gz", "w:gz") as archive:
        archive.add(builds.file("inner.txt"), "inner.txt")
    assert builds.files("ADD data.tar.gz /data/") == {"/data/inner.txt": "this is inner.txt"}


def test_add_fetches_nothing(builds: Builds):
    message = "Dockerfile:2: ADD: URLs are not supported by the local account, got 'https://example.com/x'"
    assert builds.refused("ADD https://example.com/x /opt/") == message


def test_chmod_sets_the_mode(builds: Builds):
    builds.file("run.sh")
    image = builds.build("COPY --chmod=750 run.sh /run.sh")
    assert (image.root / "run.sh").stat().st_mode & 0o777 == 0o750


def test_chown_is_noted_to_have_no_effect(builds: Builds):
    builds.file("run.sh")
    assert "Dockerfile:2: --chown has no effect: all files of a host have the same owner" in (
        builds.build("COPY --chown=1:1 run.sh /run.sh").notes
    )


def test_a_flag_that_is_not_known_is_refused_by_name_and_line(builds: Builds):
    builds.file("a")
    assert builds.refused("COPY --parents a /a") == "Dockerfile:2: COPY --parents is not supported by the local account"


def test_a_here_document_is_a_file_with_its_variables_put_in(builds: Builds):
    assert builds.files("ENV A=one", "COPY <<EOF /opt/settings", "a=$A", "EOF") == {"/opt/settings": "a=one\n"}


def test_a_link_in_an_image_does_not_lead_out_of_it(builds: Builds, tmp_path: Path):
    (tmp_path / "machine").mkdir()
    (builds.context / "tree").mkdir()
    (builds.context / "tree" / "code").symlink_to(tmp_path / "machine")
    builds.file("train.py")
    image = builds.build("COPY tree /opt/", "COPY train.py /opt/code/train.py")
    assert list((tmp_path / "machine").iterdir()) == []
    assert (image.root / str(tmp_path / "machine")[1:] / "train.py").is_file()


def test_a_file_takes_the_place_of_one_that_cannot_be_written_to(builds: Builds):
    builds.file("a", "one").chmod(0o444)
    builds.file("b", "two")
    assert builds.files("COPY a /opt/a", "COPY b /opt/a") == {"/opt/a": "two"}


def test_a_file_takes_the_place_of_a_link(builds: Builds, tmp_path: Path):
    machine = tmp_path / "machine"
    machine.write_text("the machine's")
    builds.file("tree/.keep")
    (builds.context / "tree" / "run").symlink_to(machine)
    builds.file("run", "the image's")
    assert builds.files("COPY tree /opt/", "COPY run /opt/run")["/opt/run"] == "the image's"
    assert machine.read_text() == "the machine's"


def test_files_can_come_from_an_earlier_stage(builds: Builds):
    builds.file("a.py")
    lines = ("AS first", "COPY a.py /built/", "FROM python:3.11", "COPY --from=first /built /opt")
    assert list(builds.files(*lines[1:], base=f"FROM python:3.11 {lines[0]}")) == ["/opt/a.py"]


def test_a_stage_has_its_number_for_a_name_too(builds: Builds):
    builds.file("a.py")
    lines = ("COPY a.py /built/", "FROM python:3.11", "COPY --from=0 /built /opt")
    assert list(builds.files(*lines, base="FROM python:3.11 AS first")) == ["/opt/a.py"]


def test_what_a_stages_run_would_have_made_is_said_to_be_missing(builds: Builds):
    lines = ("RUN make /built", "FROM python:3.11", "COPY --from=first /built /opt")
    message = "Dockerfile:4: COPY: no file '/built' is in first, where RUN is not executed"
    assert builds.refused(*lines, base="FROM python:3.11 AS first") == message


def test_a_stage_that_nobody_made_is_refused(builds: Builds):
    assert builds.refused("COPY --from=other /a /b").startswith(
        "Dockerfile:2: COPY --from=other: there is no stage or image"
    )


def test_the_target_is_the_last_stage_that_is_built(builds: Builds):
    builds.file("a.py")
    lines = ("COPY a.py /one", "FROM python:3.11 AS second", "COPY missing /two")
    assert list(builds.files(*lines, base="FROM python:3.11 AS First", target="first")) == ["/one"]


def test_a_target_that_is_no_stage_is_refused(builds: Builds):
    assert "Dockerfile: has no stage 'third' to build" in builds.refused(target="third")


def test_an_image_built_here_can_be_a_base(builds: Builds):
    builds.file("a.py")
    builds.build("COPY a.py /opt/", "ENV A=one", "WORKDIR /opt", 'ENTRYPOINT ["python"]', tags=("base:1",))
    image = builds.build("ENV B=$A", base="FROM base:1")
    assert (image.root / "opt" / "a.py").is_file()
    assert (image.env, image.workdir, image.entrypoint) == ({"A": "one", "B": "one"}, "/opt", ["python"])


def test_a_base_of_the_accounts_own_registry_must_have_been_pushed(builds: Builds):
    message = f"Dockerfile:1: FROM: no image {REGISTRY}/base:1 has been pushed to the account"
    assert builds.refused(base=f"FROM {REGISTRY}/base:1") == message


def test_one_of_awss_containers_that_is_not_known_is_refused(builds: Builds):
    message = builds.refused(base=f"FROM {DLC.partition('/')[0]}/djl-inference:0.36")
    assert message.startswith("Dockerfile:1: FROM: the local account does not support 763104351884.dkr.ecr")


def test_another_platform_is_refused(builds: Builds):
    message = "Dockerfile:1: FROM --platform must be linux/amd64, which SageMaker trains on, got 'linux/arm64'"
    assert builds.refused(base="FROM --platform=linux/arm64 python:3.11") == message
    assert builds.refused(platform="linux/arm64").startswith("platform must be linux/amd64")


def test_env_is_the_images_environment(builds: Builds):
    assert builds.build("ENV A=one B=$A", "ENV C=$A").env == {"A": "one", "B": "", "C": "one"}


def test_a_path_is_put_before_the_one_that_every_image_has(builds: Builds):
    assert builds.build("ENV PATH=/opt/bin:$PATH").env["PATH"].startswith("/opt/bin:/usr/local/sbin:")


def test_build_arguments_replace_what_arg_says(builds: Builds):
    lines = ("ARG NAME=one", "ARG OTHER=two", "ENV A=$NAME-$OTHER")
    assert builds.build(*lines, build_args={"NAME": "given"}).env == {"A": "given-two"}


def test_an_argument_before_from_is_the_bases(builds: Builds):
    image = builds.build(
        "FROM python:$VERSION", "ENV A=.$VERSION", "ARG VERSION", "ENV B=$VERSION", base="ARG VERSION=3.11"
    )
    assert image.env == {"A": ".", "B": "3.11"}


def test_a_build_argument_that_no_arg_declares_is_noted(builds: Builds):
    assert "Dockerfile: no ARG declares the build argument NAEM" in builds.build(build_args={"NAEM": "1"}).notes


def test_entrypoint_and_cmd_are_kept(builds: Builds):
    image = builds.build('ENTRYPOINT ["python", "train.py"]', "CMD --fast")
    assert (image.entrypoint, image.cmd) == (["python", "train.py"], ["/bin/sh", "-c", "--fast"])


def test_shell_is_what_the_shell_form_starts(builds: Builds):
    assert builds.build('SHELL ["/bin/bash", "-c"]', "ENTRYPOINT run").entrypoint == ["/bin/bash", "-c", "run"]


@pytest.mark.parametrize("instruction", ["USER app", "HEALTHCHECK CMD true", "VOLUME /data", "STOPSIGNAL SIGINT"])
def test_what_has_no_effect_is_noted(builds: Builds, instruction: str):
    assert any(
        note.startswith(f"Dockerfile:2: {instruction.split()[0]} has no effect")
        for note in builds.build(instruction).notes
    )


def test_what_does_nothing_in_docker_either_is_not_noted(builds: Builds):
    base = builds.build('ENTRYPOINT ["x"]').notes
    assert builds.build('ENTRYPOINT ["x"]', "LABEL a=b", "EXPOSE 80", "MAINTAINER me").notes == base


def test_an_image_without_anything_to_start_is_noted(builds: Builds):
    assert (
        "Dockerfile: has neither an ENTRYPOINT nor the command `train`, which SageMaker starts; jobs of it fail"
        in builds.build().notes
    )


def test_each_instruction_is_a_step(builds: Builds):
    builds.build("ENV A=1")
    assert builds.steps == ["[1/2] FROM python:3.11", "[2/2] ENV A=1"]


def test_an_image_of_a_deep_learning_container_has_its_environment(builds: Builds):
    image = builds.build("ENV SAGEMAKER_PROGRAM=train.py", base=f"FROM {DLC}")
    assert image.env["SAGEMAKER_TRAINING_MODULE"] == "sagemaker_pytorch_container.training:main"
    assert not any("ENTRYPOINT" in note for note in image.notes)
