"""Corrections of moto's interpreter of the Amazon States Language where it differs from AWS.

Each function replaces one method of moto's; its docstring says what moto's does.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
import threading
from collections.abc import Callable
from typing import Any

from moto.stepfunctions.parser.api import StateMachineType
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl
from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.common.query_language import QueryLanguage, QueryLanguageMode
from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
from moto.stepfunctions.parser.asl.component.common.string.string_expression import (
    StringIntrinsicFunction,
    StringJsonPath,
)
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.intrinsic.argument.argument import ArgumentLiteral
from moto.stepfunctions.parser.asl.component.intrinsic.function.statesfunction.generic.string_format import StringFormat
from moto.stepfunctions.parser.asl.component.program.program import Program
from moto.stepfunctions.parser.asl.component.state.exec.state_map.label import Label
from moto.stepfunctions.parser.asl.component.state.exec.state_map.tolerated_failure import (
    ToleratedFailureCountStringJSONata,
)
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.program_state import ProgramRunning
from moto.stepfunctions.parser.asl.parse import asl_parser, preprocessor
from moto.stepfunctions.parser.asl.parse.intrinsic import intrinsic_parser
from moto.stepfunctions.parser.asl.parse.intrinsic import preprocessor as intrinsic
from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
from moto.stepfunctions.parser.asl.utils import json_path

from sagemaker_local_account.aws.stepfunctions import map_extensions
from sagemaker_local_account.aws.stepfunctions.errors import failure, nearest
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch

# How often a wait polls whether its execution has ended.
POLL_SECONDS = 0.2

# How long an execution that was stopped or timed out waits for its current state to end.
UNWIND_SECONDS = 2.0

# The longest run of an express state machine ("Quotas related to state machine executions").
_EXPRESS_SECONDS = 300

# moto's grammar takes only a percentage with a decimal point.
_WHOLE_PERCENTAGE = re.compile(r'("ToleratedFailurePercentage"\s*:\s*\d+)(?=\s*[,}])')

# The texts of an intrinsic function, and characters of Unicode's private use in place of those that the grammar refuses there.
_LITERAL = re.compile(r"'(?:\\.|[^'\\])*'", re.DOTALL)
_SHOWN = {code: 0xE000 + code for code in range(32)}
_HIDDEN = {shown: code for code, shown in _SHOWN.items()}

_MOST_SECONDS = 2**31 - 1

_environment = threading.local()


def install() -> None:
    """Patches moto's interpreter."""
    patch(asl_parser, "Preprocessor", _Preprocessor)
    patch(preprocessor, "from_string_literal", _text_of, "parser_rule_context")
    parser = asl_parser.AmazonStateLanguageParser
    patch(parser, "parse", staticmethod(_parsed_once(parser.parse)), "definition")
    patch(Program, "eval", _evaluate_program, "self, env")
    patch(Environment, "set_error", _only_while_running(Environment.set_error), "self, error")
    patch(Environment, "set_timed_out", _only_while_running(Environment.set_timed_out), "self")
    make_frame = Environment.as_inner_frame_of.__func__
    patch(
        Environment,
        "as_inner_frame_of",
        _with_parent(make_frame),
        "cls, env, variable_store, event_history_frame_cache",
    )
    patch(WaitFunction, "_wait_interval", _wait_interval, "self, env, wait_seconds")
    patch(Timestamp, "_get_wait_seconds", _in_utc(Timestamp._get_wait_seconds), "self, env")
    patch(retrier_decl, "time", _StoppableSleep)
    evaluate_retrier = retrier_decl.RetrierDecl._eval_body
    patch(retrier_decl.RetrierDecl, "_eval_body", _knowing_environment(evaluate_retrier), "self, env")
    patch(ErrorEqualsDecl, "_eval_body", _error_equals, "self, env")
    patch(CustomErrorName, "__init__", _error_name, "self, error_name")
    patch(json_path, "_contains_slice_or_wildcard_array", _finds_a_list, "path")
    patch(intrinsic.Preprocessor, "visitFunc_arg_string", _visit_text, "self, ctx")
    patch(StringFormat, "_eval_body", _format, "self, env")


class _Literal(ArgumentLiteral):
    r"""Text in an intrinsic function, of which `\'`, `\{`, `\}` and `\\` are the characters themselves: moto keeps the backslash.

    "Intrinsic functions", Reserved characters; localstack/localstack 13425.

    Attributes:
        parts: What is around each `{}`, of which neither brace was escaped.
    """

    def __init__(self, escaped: str) -> None:
        self.parts = [""]
        for piece in re.findall(r"\\.|\{\}|.", escaped, re.DOTALL):
            if piece == "{}":
                self.parts.append("")
            else:
                self.parts[-1] += piece[-1]
        super().__init__(definition_value="{}".join(self.parts))


def _visit_text(self: intrinsic.Preprocessor, ctx: Any) -> _Literal:
    return _Literal(ctx.STRING().getText()[1:-1].translate(_HIDDEN))


def _format(self: StringFormat, env: Environment) -> None:
    """Replaces each `{}`: moto's takes other braces for Python's fields, and more values than places."""
    self.argument_list.eval(env=env)
    template, *values = env.stack.pop()
    literal = self.argument_list.arguments[0]
    parts = literal.parts if isinstance(literal, _Literal) else template.split("{}")
    if len(parts) != len(values) + 1:
        raise ValueError(f"States.Format must have as many values as {{}}, {len(parts) - 1}, got {len(values)}")
    texts = [*map(StringFormat._to_str_repr, values), ""]
    env.stack.append("".join(part + text for part, text in zip(parts, texts, strict=True)))


def _finds_a_list(path: str) -> bool:
    """Whether a path that matches nothing is an empty list: also one with a filter, which in moto is an error.

    A path with "?(<expression>)" is indefinite, and "indefinite paths always returns a list" (json-path/JsonPath, README, "What
    is Returned When?").
    """
    return "[?(" in path or _moto_finds_a_list(path)


_moto_finds_a_list = json_path._contains_slice_or_wildcard_array


class _Preprocessor(Preprocessor):
    """Has the scopes of query languages of one definition; moto's class shares them between the threads of all executions.

    Of two executions that start at once, one could find no scope: its thread ended, and the execution ran for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._query_language_per_scope: list[Any] = []

    def _open_query_language_scope(self, parse_tree: Any) -> None:
        """Lets a state in a Map in JSONata be in JSONPath, unless the state machine is in JSONata.

        `test_sfn_api_validation.py::test_validate_state_machine_definition_type_standard[VALID_QUERY_LANGUAGE_PASS]`.
        """
        try:
            super()._open_query_language_scope(parse_tree)
        except ValueError:
            if self._query_language_per_scope[0].query_language_mode == QueryLanguageMode.JSONata:
                raise
            self._query_language_per_scope.append(QueryLanguage(QueryLanguageMode.JSONPath))

    def visitString_jsonpath(self, ctx: Any) -> StringJsonPath:
        """Has the literal's own text: moto's paths decode the escapes (`test_escape_sequence_parsing`)."""
        return StringJsonPath(json_path=ctx.getText()[1:-1])

    def visitString_intrinsic_function(self, ctx: Any) -> StringIntrinsicFunction:
        r"""Decodes the literal's escapes before those of the function's own texts: moto's decodes some of both at once.

        The grammar has no line breaks in texts, as in `States.Format('\\n\\nHuman: {}', $.prompt)` of Bedrock's examples
        (aws-samples/step-functions-workflows-collection, bedrock-invokemodel).
        """
        text = _LITERAL.sub(lambda found: found[0].translate(_SHOWN), json.loads(ctx.getText(), strict=False))
        return StringIntrinsicFunction(text, function=intrinsic_parser.IntrinsicParser.parse(text)[0])

    def visitLabel_decl(self, ctx: Any) -> Label:
        """Has the literal's own text: moto's label decodes the escapes."""
        return Label(label=ctx.string_literal().getText()[1:-1])

    def visitTolerated_failure_count_string_jsonata(self, ctx: Any) -> ToleratedFailureCountStringJSONata:
        """Has a count, where moto's is a percentage (`test_state/`, `test_base_map_state_inspect[TOLERATED_FAILURE_COUNT]`)."""
        return ToleratedFailureCountStringJSONata(string_jsonata=self.visitString_jsonata(ctx=ctx.string_jsonata()))

    @staticmethod
    def _inner_string_of(parser_rule_context: Any) -> str | None:
        return _text_of(parser_rule_context)


def _text_of(parser_rule_context: Any) -> str | None:
    r"""The value of a literal of JSON: moto's has no escapes decoded, or as those of Python: `{"text": "\"a\""}`.

    `assign/test_assign_reference_variables.py::test_reference_assign[BASE_REFERENCE_IN_INTRINSIC_FUNCTION]`.
    """
    text = parser_rule_context.getText()
    return json.loads(text, strict=False) if text.startswith('"') or text == "null" else text


def _parsed_once(parse: Callable[[str], tuple[Any, Any]]) -> Callable[[str], tuple[Any, Any]]:
    """Keeps the syntax trees of the last definitions; moto parses one at each StartExecution, 50 ms of a processor for 6 KB.

    The program of an execution holds its state, and is made again from the tree.
    """

    @functools.lru_cache(maxsize=32)
    def tree_of(definition: str) -> Any:
        return parse(_WHOLE_PERCENTAGE.sub(r"\1.0", map_extensions.parseable(definition)))[1]

    def parse_once(definition: str) -> tuple[Any, Any]:
        tree = tree_of(definition)
        return asl_parser.Preprocessor().visit(tree), tree

    return parse_once


def _evaluate_program(self: Program, env: Environment) -> None:
    """Ends an execution soon after StopExecution or its timeout, which an express one has by itself, with a complete history.

    moto joins the thread of the states, which may wait in a callback or retry for hours after StopExecution, and ends an
    execution that timed out before the last event of its history is written.
    """
    deadline = CLOCK.monotonic() + self.timeout_seconds.timeout_seconds if self.timeout_seconds else math.inf
    if env.execution_type == StateMachineType.EXPRESS and not env.is_frame():
        env.local_account_express = _ExpressTime()
    env.next_state_name = getattr(env, "local_account_start_at", self.start_at.start_at_name)
    worker = threading.Thread(target=EvalComponent.eval, args=(self, env), daemon=True)
    worker.start()
    express = getattr(env, "local_account_express", None)
    while worker.is_alive() and env.is_running():
        left = min(deadline, math.inf if express is None else express.deadline) - CLOCK.monotonic()
        if left <= 0:
            env.set_timed_out()
        else:
            worker.join(min(left, POLL_SECONDS))
    if express is not None:
        CLOCK.watchers.discard(express.advanced)
    # Frames (a branch of a Parallel state, an iteration of a Map) end with their state.
    worker.join(None if env.is_frame() else UNWIND_SECONDS)


class _ExpressTime:
    """Until when an express execution runs; of an advance of the clock counts what it waits for, since no work takes that time.

    Attributes:
        deadline: by the account's clock.
        waits: when its waits end.
    """

    def __init__(self) -> None:
        self.deadline = CLOCK.monotonic() + _EXPRESS_SECONDS
        self.waits: dict[object, float] = {}
        CLOCK.watchers.add(self.advanced)

    def advanced(self, seconds: float) -> None:
        longest = max([0.0, *(until - CLOCK.monotonic() for until in [*self.waits.values()])])
        self.deadline += max(0.0, seconds - longest)


def limit_express(env: Environment) -> None:
    """Ends the program of an environment once an express execution would end, as an item of a Distributed Map may be one."""
    env.local_account_express = _ExpressTime()


def _only_while_running(method: Any) -> Any:
    """Keeps the status of an execution that has ended: in moto a state that then fails changes ABORTED to FAILED."""

    def set_state(self: Environment, *args: Any, **kwargs: Any) -> None:
        with self._state_mutex:
            if isinstance(self._program_state, ProgramRunning):
                method(self, *args, **kwargs)

    return set_state


def _with_parent(make_frame: Any) -> Any:
    """Adds the parent to a frame, which distinguishes a state's timeout from its execution's; moto's frames have none."""

    def as_inner_frame_of(cls: Any, env: Environment, *args: Any, **kwargs: Any) -> Environment:
        frame: Environment = make_frame(cls, env, *args, **kwargs)
        frame.local_account_parent = env
        return frame

    return as_inner_frame_of


def _wait_interval(self: WaitFunction, env: Environment, wait_seconds: float) -> None:
    """Waits; moto's misses a stop that comes before the wait, and waits up to a second too long.

    Raises:
        FailureEventException: the seconds are more than 32 bits (`base/test_wait.py::test_timestamp_too_far_in_future_boundary`).
    """
    if wait_seconds > _MOST_SECONDS:
        raise failure(env, StatesErrorNameType.StatesRuntime, "Wait state delay is too long.")
    _sleep(env, wait_seconds)


def _sleep(env: Environment, seconds: float) -> None:
    deadline = CLOCK.monotonic() + seconds
    express = nearest(env, "local_account_express")
    waits: dict[object, float] = {} if express is None else express.local_account_express.waits
    waits[own := object()] = deadline
    while env.is_running() and (left := deadline - CLOCK.monotonic()) > 0:
        env.program_state_event.wait(min(left, POLL_SECONDS))
    del waits[own]


def _in_utc(get_wait_seconds: Any) -> Any:
    """Corrects the wait until a Timestamp: moto subtracts the machine's local time from a time in UTC."""

    def in_utc(self: Timestamp, env: Environment) -> int:
        offset = datetime.datetime.now().astimezone().utcoffset() or datetime.timedelta()
        seconds: int = get_wait_seconds(self, env)
        return seconds + int(offset.total_seconds() - CLOCK.ahead)

    return in_utc


class _StoppableSleep:
    """Replaces the module `time` in moto's Retry, whose sleep StopExecution cannot interrupt."""

    @staticmethod
    def sleep(seconds: float) -> None:
        _sleep(_environment.current, seconds)


def _knowing_environment(method: Any) -> Any:
    def evaluate(self: Any, env: Environment) -> None:
        _environment.current = env
        method(self, env)

    return evaluate


def _error_name(self: CustomErrorName, error_name: str | None) -> None:
    """Also a name of a user's that begins with "States.", which the language's specification reserves, and AWS takes.

    aws-samples/step-functions-workflows-collection: quorum-with-parallel-pattern, either-or-parallel-pattern.
    """
    ErrorName.__init__(self, error_name=error_name)


def _error_equals(self: ErrorEqualsDecl, env: Environment) -> None:
    """Matches an error to ErrorEquals.

    On AWS neither States.ALL nor States.TaskFailed matches States.Runtime, and States.TaskFailed matches all others except
    States.Timeout. In moto States.ALL matches every error. The guide says that States.ALL does not match
    States.DataLimitExceeded either; AWS as LocalStack recorded it does
    (`error_handling/test_states_errors.py::test_task_lambda_catch_state_all_data_limit_exceeded_on_large_utf8_response`).
    """
    error_name = env.stack.pop()
    named = error_name in self.error_names
    terminal = error_name == StatesErrorName(typ=StatesErrorNameType.StatesRuntime)
    unnamed = error_name in (
        StatesErrorName(typ=StatesErrorNameType.StatesTimeout),
        StatesErrorName(typ=StatesErrorNameType.StatesStatesDataLimitExceeded),
    )
    wildcard = ErrorEqualsDecl._STATE_ALL_ERROR in self.error_names or (
        ErrorEqualsDecl._STATE_TASK_ERROR in self.error_names and not unnamed
    )
    env.stack.append(named or (wildcard and not terminal))
