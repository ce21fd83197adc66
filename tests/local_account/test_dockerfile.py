import pytest

from sagemaker_local_account.images.dockerfile import (
    BuildError,
    Instruction,
    command,
    expand,
    expanded,
    pairs,
    parse,
    words,
)


def only(text: str) -> Instruction:
    [instruction] = parse(text)
    return instruction


def test_an_instruction_has_its_keyword_its_value_and_its_line():
    found = parse("FROM python:3.11\n\n# about\ncopy a.py /opt/\n")
    assert [(one.keyword, one.value, one.place) for one in found] == [
        ("FROM", "python:3.11", "Dockerfile:1"),
        ("COPY", "a.py /opt/", "Dockerfile:4"),
    ]


def test_continued_lines_are_one_instruction_with_the_first_ones_line():
    found = parse("FROM x\nRUN pip install \\\n  # for reading\n\n  pyarrow \\\n  pandas\nCMD train")
    assert [(one.keyword, one.value.split(), one.place) for one in found[1:]] == [
        ("RUN", ["pip", "install", "pyarrow", "pandas"], "Dockerfile:2"),
        ("CMD", ["train"], "Dockerfile:7"),
    ]


def test_an_escape_directive_changes_what_continues_a_line():
    assert [one.keyword for one in parse("# escape=`\nFROM x\nRUN a `\n  b\nCMD c")] == ["FROM", "RUN", "CMD"]


def test_flags_are_apart_from_the_value():
    found = only("COPY --from=build --chown=1:1 /a /b")
    assert (found.flags, found.value) == ({"from": ["build"], "chown": ["1:1"]}, "/a /b")


def test_what_cmd_starts_may_have_flags_of_its_own():
    assert only("CMD --serve now").value == "--serve now"


def test_a_here_document_is_a_file_of_its_instruction():
    copy, cmd = parse("COPY <<run.sh /opt/\n#!/bin/sh\nFROM here\nrun.sh\nCMD x".replace("run.sh", "EOF"))
    assert [(one.name, one.text, one.expands) for one in copy.heredocs] == [("EOF", "#!/bin/sh\nFROM here\n", True)]
    assert cmd.place == "Dockerfile:5"


def test_variables_stay_as_they_are_in_a_here_document_with_a_quoted_name():
    assert only("RUN <<'EOF'\n$A\nEOF").heredocs[0].expands is False


def test_a_here_document_without_an_end_is_refused_by_its_line():
    with pytest.raises(BuildError, match="Dockerfile:2: the here-document EOF has no end"):
        parse("FROM x\nRUN <<EOF\necho\n")


def test_an_instruction_that_is_not_known_is_refused_by_name_and_line():
    with pytest.raises(
        BuildError, match="Dockerfile:3: instruction ONBUILD is not supported by the local account; it supports ADD"
    ):
        parse("FROM x\n\nONBUILD RUN ls\n")


def test_a_word_that_is_no_instruction_is_refused_by_its_line():
    with pytest.raises(BuildError, match=r"gpu\.Dockerfile:2: instruction PIP is not supported"):
        parse("FROM x\npip install torch\n", "gpu.Dockerfile")


def test_an_instruction_without_an_argument_is_refused():
    with pytest.raises(BuildError, match="Dockerfile:2: instruction WORKDIR has no argument"):
        parse("FROM x\nWORKDIR\n")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$A-${A}", "one-one"),
        ("${NONE}$NONE.", "."),
        ("${NONE:-two} ${EMPTY:-two} ${EMPTY-two}", "two two "),
        ("${A:+set}${NONE:+set}", "set"),
        ("${NONE:-$A}", "one"),
    ],
)
def test_variables_expand_as_in_docker(text: str, result: str):
    assert expand(text, {"A": "one", "EMPTY": ""}) == result


def test_a_variable_that_must_be_set_is_refused_when_it_is_not():
    with pytest.raises(BuildError, match=r"Dockerfile:1: WORKDIR: \$\{NAME\} is not set: say which"):
        words(only("WORKDIR /${NAME:?say which}"), {})


def test_single_quotes_keep_variables_and_double_quotes_do_not():
    assert words(only("""COPY '$A' "$A b" \\$A /to"""), {"A": "one"}) == ["$A", "one b", "$A", "/to"]


def test_a_whole_value_can_be_one_word():
    assert expanded(only("WORKDIR /opt/${NAME}"), {"NAME": "ml"}) == "/opt/ml"


def test_a_quotation_that_is_not_closed_is_refused():
    with pytest.raises(BuildError, match='Dockerfile:1: ENV: a quotation mark " is not closed'):
        pairs(only('ENV A="one'), {})


def test_env_sets_several_names_at_once():
    assert pairs(only("""ENV A=$X B="two words" C=three\\ words"""), {"X": "1"}) == {
        "A": "1",
        "B": "two words",
        "C": "three words",
    }


def test_envs_old_form_sets_one_name_to_the_rest_of_the_line():
    assert pairs(only("ENV A one $X"), {"X": "two"}) == {"A": "one two"}


def test_env_without_a_value_is_refused():
    with pytest.raises(BuildError, match="Dockerfile:1: ENV must be like 'ENV NAME=value', got 'A'"):
        pairs(only("ENV A"), {})


def test_the_exec_form_is_started_as_it_is():
    assert command(only('CMD ["python", "a b.py"]'), ["/bin/sh", "-c"]) == ["python", "a b.py"]


def test_the_shell_form_is_started_by_the_shell():
    assert command(only("CMD python $FILE"), ["/bin/bash", "-c"]) == ["/bin/bash", "-c", "python $FILE"]
