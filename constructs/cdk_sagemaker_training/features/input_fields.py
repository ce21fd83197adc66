"""Declared fields of an execution's input, which the state machine checks before it creates a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.facts.service_model import input_places, problem_of, shape_type
from cdk_sagemaker_training.handlers.sweep import allows
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.props.jsonpath import quoted
from cdk_sagemaker_training.props.prop import LITERAL, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields
from cdk_sagemaker_training.request.scripts.code import check_values

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TAKEN = "Training"  # the workflow's own data


@kind("NumberField(minimum=0, maximum=1)")
@dataclass(frozen=True)
class NumberField(Value):
    """A number in an execution's input.

    Args:
        minimum: The least that is allowed; None for no limit.
        maximum: The most that is allowed; None for no limit.
        default: The number where an execution's input has none. Default: the input must have one.
        whole: Whether it is written without a fraction, as a number of machines must be: 2, and neither 2.5 nor 2.0.

    Raises:
        ValueError: ``minimum`` is above ``maximum``, or ``default`` is not allowed.
    """

    minimum: Annotated[float | None, LITERAL] = None
    maximum: Annotated[float | None, LITERAL] = None
    default: Annotated[float | None, Prop(known=LITERAL, example="0.1")] = None
    whole: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise must("minimum", "be at most maximum", "0 and 1", f"{self.minimum} and {self.maximum}")
        _check_default(self)

    @property
    def listed(self) -> tuple[float, ...]:
        """Values that are allowed: the bounds and the default."""
        return tuple(number for number in (self.minimum, self.maximum, self.default) if number is not None)

    @property
    def rule(self) -> str:
        """What is allowed, as text."""
        bounds = [f"at least {self.minimum}"] if self.minimum is not None else []
        bounds += [f"at most {self.maximum}"] if self.maximum is not None else []
        return f"a {'whole ' if self.whole else ''}number" + (f" of {' and '.join(bounds)}" if bounds else "")

    def limits(self) -> dict[str, Any]:
        """What is allowed, as JSON."""
        limits = {"minimum": self.minimum, "maximum": self.maximum, "whole": self.whole or None}
        return {name: value for name, value in limits.items() if value is not None}

    def _condition(self, path: str) -> dict[str, Any]:
        """The condition of a Choice that a value at a JSONPath is allowed."""
        conditions: list[dict[str, Any]] = [{"Variable": path, "IsNumeric": True}]
        if self.minimum is not None:
            conditions.append({"Variable": path, "NumericGreaterThanEquals": self.minimum})
        if self.maximum is not None:
            conditions.append({"Variable": path, "NumericLessThanEquals": self.maximum})
        return {"And": conditions}


@kind("ChoiceField(['ml.g5.xlarge', 'ml.g5.2xlarge'])")
@dataclass(frozen=True)
class ChoiceField(Value):
    """One of several values in an execution's input, such as an instance type or a number of machines.

    Args:
        values: The values: texts, or numbers.
        default: The value where an execution's input has none. Default: the input must have one.

    Raises:
        ValueError: There are no values, or ``default`` is none of them.
    """

    values: Annotated[Sequence[str | float], Prop(known=LITERAL, example="['ml.g5.xlarge', 'ml.g5.2xlarge']")]
    default: Annotated[str | float | None, Prop(known=LITERAL, example="'ml.g5.xlarge'")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.values:
            raise must("values", "be at least one", "['ml.g5.xlarge', 'ml.g5.2xlarge']", repr(self.values))
        _check_default(self)

    @property
    def listed(self) -> tuple[str | float, ...]:
        """The values that are allowed."""
        return tuple(self.values)

    @property
    def rule(self) -> str:
        """What is allowed, as text."""
        return f"one of {', '.join(map(str, self.values))}"

    def limits(self) -> dict[str, Any]:
        """What is allowed, as JSON."""
        return {"values": list(self.values)}

    def _condition(self, path: str) -> dict[str, Any]:
        """The condition of a Choice that a value at a JSONPath is allowed."""
        return {
            "Or": [
                {"Variable": path, "StringEquals" if isinstance(value, str) else "NumericEquals": value}
                for value in self.values
            ]
        }


@kind("TextField('images-*')")
@dataclass(frozen=True)
class TextField(Value):
    """Text in an execution's input, such as the name of a data set.

    Args:
        pattern: What it matches, in which ``*`` is any text.
        default: The text where an execution's input has none. Default: the input must have one.

    Raises:
        ValueError: ``default`` does not match the pattern.
    """

    pattern: Annotated[str, LITERAL] = "*"
    default: Annotated[str | None, Prop(known=LITERAL, example="'images-1'")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_default(self)

    @property
    def listed(self) -> tuple[str, ...]:
        """The default, one value that is allowed; nothing without one."""
        return () if self.default is None else (self.default,)

    @property
    def rule(self) -> str:
        """What is allowed, as text."""
        return "text" if self.pattern == "*" else f"text like {self.pattern}"

    def limits(self) -> dict[str, Any]:
        """What is allowed, as JSON."""
        return {"pattern": self.pattern}

    def _condition(self, path: str) -> dict[str, Any]:
        """The condition of a Choice that a value at a JSONPath is allowed."""
        return {"And": [{"Variable": path, "IsString": True}, {"Variable": path, "StringMatches": self.pattern}]}


InputField = NumberField | ChoiceField | TextField


class InputFields(Feature):
    """Checks the declared fields of an execution's input before a job is created."""

    prop = "input_fields"

    def __init__(self, fields: Mapping[str, InputField]) -> None:
        """Check the names: each can be written as ``$.name``, and gives its states names that no other has."""
        seen: set[str] = set()
        for name in fields:
            if not re.fullmatch(_NAME, name) or name == _TAKEN:
                rule = "be by names of letters, digits and underscores, other than 'Training'"
                raise must("input_fields", rule, "'learning_rate'", repr(name))
            if _state(name) in seen:
                raise must("input_fields", "be by names that differ by more than case", "'steps'", repr(name))
            seen.add(_state(name))
        self.fields = dict(fields)

    def check(self, plan: Plan) -> None:
        """Check that members of the requests that take a field as it is take all that it allows; warn of those not read."""
        for member, shape, path in (place for request in plan.all_requests for place in input_places(request)):
            name = path.removeprefix("$.")
            if (field := self.fields.get(name)) is not None:
                _check_type(name, field, member, shape)
                for value in field.listed:
                    _check_value(name, value, member, shape)
        check_values(plan.props, plan.all_requests, {name: field.listed for name, field in self.fields.items()})
        plan.jobs.advise(_unused_advice(self.fields, plan.all_requests))

    def before_the_first_job(self, following: str) -> Mapping[str, Any]:
        """Return the states that check an execution's input, of which `Defaults` is the first, or else `CheckInput`.

        A field that is missing or not allowed ends the execution with the error ``InvalidInput``, and a cause that names the
        field, what is allowed, and what came.
        """
        rules: list[dict[str, Any]] = []
        states: dict[str, Any] = {}
        for name, field in self.fields.items():
            path = f"$.{name}"
            missing, invalid = f"Missing{_state(name)}", f"Invalid{_state(name)}"
            must = quoted(f"{name} must be {field.rule}")
            if field.default is None:
                rules.append({"Variable": path, "IsPresent": False, "Next": missing})
                states[missing] = _fail(f"States.Format('{{}}, got nothing', {must})")
            rules.append({"Not": field._condition(path), "Next": invalid})
            states[invalid] = _fail(f"States.Format('{{}}, got {{}}', {must}, States.JsonToString({path}))")
        defaults = {name: field.default for name, field in self.fields.items() if field.default is not None}
        whole = [name for name, field in self.fields.items() if isinstance(field, NumberField) and field.whole]
        return {
            **(_defaults_states(defaults) if defaults else {}),
            "CheckInput": {"Type": "Choice", "Choices": rules, "Default": "NumbersAsText" if whole else following},
            **(_whole_states(whole, following) if whole else {}),
            **states,
        }


def _whole_states(names: Sequence[str], following: str) -> dict[str, Any]:
    """The states that look for a fraction or an exponent in the text of numbers, which a Choice does not see in the number."""
    text = f"$.{_TAKEN}"
    return {
        "NumbersAsText": {
            "Type": "Pass",
            "Parameters": {f"{name}.$": f"States.JsonToString($.{name})" for name in names},
            "ResultPath": text,
            "Next": "AreWhole",
        },
        "AreWhole": {
            "Type": "Choice",
            "Choices": [
                {
                    "Or": [
                        {"Variable": f"{text}.{name}", "StringMatches": pattern} for pattern in ("*.*", "*e*", "*E*")
                    ],
                    "Next": f"Invalid{_state(name)}",
                }
                for name in names
            ],
            "Default": following,
        },
    }


def _defaults_states(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The states that add defaults to the input; of two members of one name, JsonMerge keeps the second's."""
    return {
        "Defaults": {
            "Type": "Pass",
            "Parameters": {"Defaults": dict(defaults), "Input.$": "$"},
            "Next": "WithDefaults",
        },
        "WithDefaults": {
            "Type": "Pass",
            "Parameters": {"Input.$": "States.JsonMerge($.Defaults, $.Input, false)"},
            "OutputPath": "$.Input",
            "Next": "CheckInput",
        },
    }


def _check_default(field: InputField) -> None:
    if field.default is not None and not allows(field.limits(), field.default):
        raise must("default", f"be {field.rule}", "None", repr(field.default))


def _fail(cause: str) -> dict[str, Any]:
    return {"Type": "Fail", "Error": "InvalidInput", "CausePath": cause}


def _state(name: str) -> str:
    """A field's name as part of a state's, such as `LearningRate`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _unused_advice(fields: Mapping[str, InputField], readers: Iterable[Any]) -> Iterator[Advice]:
    """Warn of fields that nothing reads, such as ``instance_typ`` where a job's machines are of ``$.instance_type``."""
    text = "".join(map(str, readers))
    for name in fields:
        if not re.search(rf"\$(\.|\['){name}\b", text):
            yield from advice(
                "unused-input-field",
                f"input_fields[{name!r}] is in no prop of the job, so that an execution must have it to no effect: use it like "
                f"sfn.JsonPath.string_at('$.{name}'), or leave it out.",
            )


def _check_type(name: str, field: InputField, member: str, shape: str) -> None:
    """Check the type, as the service model has it: hyperparameters and variables are text, and no service converts a number."""
    kind = shape_type(shape)
    given = field.listed if isinstance(field, ChoiceField) else ()
    text = isinstance(field, TextField) or (bool(given) and all(isinstance(value, str) for value in given))
    whole = all(isinstance(value, int) for value in given) if given else isinstance(field, NumberField) and field.whole
    if kind in ("integer", "long") and not whole:
        raise must(
            f"input_fields[{name!r}]",
            f"be whole numbers, which {member} takes",
            "NumberField(1, 8, whole=True)",
            repr(field),
        )
    if kind == "string" and not text:
        raise must(
            member,
            f"be text, as which the number input_fields[{name!r}] is formatted like sfn.JsonPath.format('{{}}', "
            f"sfn.JsonPath.string_at('$.{name}'))",
            "",
            f"'$.{name}' of {field!r}",
        )


def _check_value(name: str, value: Any, member: str, shape: str) -> None:
    prop = f"input_fields[{name!r}]"
    if shape == "TrainingInstanceType":
        check_training_instance_type(value, prop)
    elif member.endswith("InstanceCount"):
        at_least(1)(prop, value, "2")
    elif problem := problem_of(shape, value):
        raise ValueError(f"{prop} allows what {member} does not: it {problem}")
