"""Which event patterns EventBridge accepts, and which events they match.

Where a test names a recording, its answer is AWS's as LocalStack recorded it (localstack/localstack at 8b9a79f,
tests/aws/services/events/test_events_patterns.py, by the name of its template).
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.events.exceptions import InvalidEventPatternException
from running_account import Running
from state_machines import Machines

from sagemaker_local_account.aws.events import patterns

EVENT = {
    "id": "1",
    "source": "test-source",
    "detail-type": "test-detail-type",
    "account": "123456789012",
    "region": "us-east-2",
    "time": "2022-07-13T13:48:01Z",
}


@pytest.mark.parametrize(
    ("pattern", "reason", "column"),
    [
        ('{"resources": []}', "Empty arrays are not allowed", 17),
        ('{"int": 42}', '"int" must be an object or an array', 11),
        ('{"string": "my-value"}', '"string" must be an object or an array', 13),
        ('{"time": [{"prefix": 123}]}', "prefix match pattern must be a string", 25),
        ('{"time": [{"prefix": ["2022-07-13"]}]}', "prefix match pattern must be a string", 23),
        ('{"FileName": [{"suffix": 123}]}', "suffix match pattern must be a string", 29),
        ('{"my_key": [{"EXISTS": true}]}', "Unrecognized match type EXISTS", 28),
        ('{"detail": {"equal": [{"NUMERIC": ["=", 5]}]}}', "Unrecognized match type NUMERIC", 36),
        ('{"detail": {"c-count": [{"numeric": 10}]}}', "Value of numeric must be an array.", 39),
        ('{"detail": {"c-count": [{"numeric": [">", 0, ">", 0]}]}}', "Bad numeric range operator: >", 49),
        ('{"detail": {"c-count": [{"numeric": [">", 0, "<"]}]}}', "Value of < must be numeric", 50),
        ('{"EventBusArn": [{"wildcard": 123}]}', "wildcard match pattern must be a string", 34),
        (
            '{"EventBusArn": [{"wildcard": "arn:aws:events:us-east-1:**:event-bus/*"}]}',
            "Consecutive wildcard characters at pos 26",
            72,
        ),
        (
            '{"detail-type": [{"equals-ignore-case": {"prefix": "ec2"}}]}',
            "equals-ignore-case match pattern must be a string",
            42,
        ),
        (
            '{"detail": {"state": [{"anything-but": null}]}}',
            "Value of anything-but must be an array or single string/number value.",
            44,
        ),
        (
            '{"detail": {"FileName": [{"anything-but": {"prefix": {"equals-ignore-case": "file"}}}]}}',
            "Value of anything-but must be an array or single string/number value.",
            55,
        ),
        (
            '{"detail": {"FileName": [{"anything-but": {"prefix": ""}}]}}',
            "Null prefix/suffix not allowed",
            56,
        ),
        (
            '{"detail": {"state": [{"anything-but": {"equals-ignore-case": 123}}]}}',
            "Inside anything-but/equals-ignore-case list, number|start|null|boolean is not supported.",
            66,
        ),
        ('{"detail": {"sourceIPAddress": [{"cidr": ["bad-type"]}]}}', "prefix match pattern must be a string", 43),
        ('["not", "a", "dict", "but valid json"]', "Filter is not an object", 2),
        (
            "this is valid json but not a dict",
            "Unrecognized token 'this': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or 'false')",
            5,
        ),
        (
            '{"not": closed mark"',
            "Unrecognized token 'closed': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or "
            "'false')",
            15,
        ),
        (
            "{'bad': 'quotation'}",
            "Unexpected character (''' (code 39)): was expecting double-quote to start field name",
            2,
        ),
    ],
)
def test_a_pattern_is_refused_in_the_words_of_aws(pattern: str, reason: str, column: int) -> None:
    """The templates *_EXC, and test_invalid_json_event_pattern"""
    with pytest.raises(InvalidEventPatternException) as raised:
        patterns.compiled(pattern)
    where = f'\n at [Source: (String)"{pattern}"; line: 1, column: {column}]'
    assert raised.value.message == f"Event pattern is not valid. Reason: {reason}{where}"


def test_an_error_in_a_list_of_anything_but_names_its_place_twice() -> None:
    """content_anything_prefix_list_type_EXC"""
    pattern = '{"detail": {"state": [{"anything-but": {"prefix": [123, "test"]}}]}}'
    with pytest.raises(InvalidEventPatternException) as raised:
        patterns.compiled(pattern)
    where = f'\n at [Source: (String)"{pattern}"; line: 1, column: 55]'
    assert raised.value.message.endswith(f"prefix/suffix match pattern must be a string{where}{where}")


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ({"cidr": "10.0.0.0"}, "Malformed CIDR, one '/' required"),
        ({"cidr": "xx.11.xx/8"}, "Nonstandard IP address: xx.11.xx"),
        ({"cidr": "10.0.0.0/xx"}, "Malformed CIDR, mask bits must be an integer"),
        (
            {"wildcard": "*:*:*:*:*:event-bus/*"},
            "Rule is too complex - try using fewer wildcard characters or fewer repeating character sequences after a "
            "wildcard character",
        ),
    ],
)
def test_some_patterns_are_refused_without_a_place(operator: Any, reason: str) -> None:
    """content_ip_address_*_EXC, content_wildcard_complex_EXC"""
    with pytest.raises(InvalidEventPatternException) as raised:
        patterns.compiled(json.dumps({"key": [operator]}))
    assert raised.value.message == f"Event pattern is not valid. Reason: {reason}"


@pytest.mark.parametrize(
    ("filters", "matching", "others"),
    [
        (["running"], ["running", ["stopped", "running"]], ["run", None, 1]),
        ([5], [5, 5.0], ["5", True, 6]),
        ([None], [None], ["", []]),
        ([True], [True], ["true", 1]),
        ([{"prefix": "us-"}], ["us-east-1"], ["eu-us-", 1, None]),
        ([{"prefix": {"equals-ignore-case": "EventB"}}], ["EvEnTb", "eventbridge"], ["event"]),
        ([{"suffix": ".png"}], ["a.png"], ["a.PNG", "png."]),
        ([{"suffix": {"equals-ignore-case": ".png"}}], ["a.PNG"], ["a.jpg"]),
        ([{"equals-ignore-case": "Alice"}], ["aLICE"], ["alic", 1]),
        ([{"wildcard": "/Users/*/doc.txt"}], ["/Users/a/b/doc.txt"], ["/Users/doc.txt", "/Users/a/doc.txt2", 1]),
        ([{"wildcard": "a\\*b"}], ["a*b"], ["axb"]),
        ([{"wildcard": "*a*a"}], ["aa", "xaxa"], ["a"]),
        ([{"cidr": "10.0.0.0/24"}], ["10.0.0.255"], ["10.0.1.255", "x", 123]),
        ([{"cidr": "2001:db8:1234:1a00::/64"}], ["2001:0db8:1234:1a00:0000:0000:0000:0000"], ["2001:db8:1234:1a01::"]),
        ([{"numeric": [">", 0, "<=", 5]}], [1, 5, 0.5], [0, 6, "1", None, True]),
        ([{"numeric": ["=", 3.018e2]}], [301.8], [301]),
        ([{"anything-but": "initializing"}], ["running", None], ["initializing"]),
        ([{"anything-but": ["a", "b"]}], ["c", 1], ["a", "b"]),
        ([{"anything-but": [0, 1]}], [2, "0"], [0, 1.0]),
        ([{"anything-but": {"prefix": "init"}}], ["running", 123], ["initializing"]),
        ([{"anything-but": {"suffix": [".txt", ".jpg"]}}], ["a.png"], ["a.txt", "a.jpg"]),
        ([{"anything-but": {"wildcard": "*/dir/*"}}], ["/a/b", 123], ["/a/dir/b"]),
        ([{"anything-but": {"equals-ignore-case": ["a", "b"]}}], ["c"], ["A", "b"]),
        ([{"exists": True}], [None, 1, ["x"]], [[], {}, {"below": 1}]),
    ],
)
def test_a_filter_matches_what_it_matches_on_aws(filters: list[Any], matching: list[Any], others: list[Any]) -> None:
    pattern = patterns.compiled(json.dumps({"detail": {"key": filters}}))
    assert [it for it in matching if not pattern.matches({"detail": {"key": it}})] == []
    assert [it for it in others if pattern.matches({"detail": {"key": it}})] == []
    assert not pattern.matches({"detail": {}})


def test_a_field_that_must_not_exist_matches_an_event_without_it() -> None:
    """content_exists_false, or-exists-parent"""
    pattern = patterns.compiled('{"detail": {"state": {"of": [{"anything-but": ["x"]}, {"exists": false}]}}}')
    assert pattern.matches({"detail": {}})
    assert pattern.matches({"detail": {"state": 1}})
    assert not pattern.matches({"detail": {"state": {"of": "x"}}})


def test_one_of_the_alternatives_matches_together_with_the_other_fields() -> None:
    """complex_or, or-numeric-anything-but"""
    pattern = patterns.compiled(
        json.dumps({"source": ["a"], "$or": [{"detail": {"c": [{"numeric": [">", 5]}]}}, {"detail": {"d": [1]}}]})
    )
    assert pattern.matches({"source": "a", "detail": {"c": 6}})
    assert pattern.matches({"source": "a", "detail": {"c": 1, "d": 1}})
    assert not pattern.matches({"source": "a", "detail": {"c": 1, "d": 2}})
    assert not pattern.matches({"source": "b", "detail": {"c": 6}})


def test_dots_in_names_are_levels() -> None:
    """dot_joining_pattern, dot_joining_event"""
    assert patterns.compiled('{"detail": {"state.status": ["x"]}}').matches({"detail": {"state": {"status": "x"}}})
    assert patterns.compiled('{"detail": {"state": {"status": ["x"]}}}').matches({"detail": {"state.status": "x"}})


def test_values_of_one_object_in_an_array_match_together() -> None:
    pattern = patterns.compiled('{"jobs": {"name": ["a"], "status": ["Failed"]}}')
    assert pattern.matches({"jobs": [{"name": "b"}, {"name": "a", "status": "Failed"}]})
    assert not pattern.matches({"jobs": [{"name": "a", "status": "Completed"}, {"name": "b", "status": "Failed"}]})


def test_a_pattern_of_nothing_but_nesting_is_refused() -> None:
    with pytest.raises(InvalidEventPatternException):
        patterns.compiled('{"a": ' * 100_000)


def test_a_pattern_cut_anywhere_is_refused() -> None:
    whole = '{"detail": {"state": ["a", {"prefix": "b"}], "n": [{"numeric": [">", 1.5]}]}}'
    patterns.compiled(whole)
    for end in range(len(whole)):
        with pytest.raises(InvalidEventPatternException):
            patterns.compiled(whole[:end])


def test_many_wildcards_in_a_long_text_take_no_time() -> None:
    pattern = patterns.compiled('{"a": [{"wildcard": "*a*a*a*a*b"}]}')
    began = time.process_time()
    assert not pattern.matches({"a": "a" * 200_000})
    assert time.process_time() - began < 1


def test_an_event_is_tested_against_a_pattern(running: Running) -> None:
    """test_event_pattern_source, test_plain_string_payload, test_invalid_event_payload"""
    events = running.client("events")

    def result(pattern: Any, event: Any) -> bool:
        answer = events.test_event_pattern(EventPattern=json.dumps(pattern), Event=json.dumps(event))
        return bool(answer["Result"])

    assert result({"source": ["test-source"]}, EVENT)
    assert not result({"source": ["shipment"]}, EVENT)
    for event in ("plain string", ["plain string"], {"testEvent": "value"}):
        with pytest.raises(ClientError, match="Parameter Event is not valid") as raised:
            result({"source": ["a"]}, event)
        assert raised.value.response["Error"]["Code"] == "ValidationException"


def test_a_rule_with_a_bad_pattern_is_refused_and_executions_start(running: Running) -> None:
    events = running.client("events")
    pattern = '{"detail": {"status": [{"prefix": 1}]}}'
    with pytest.raises(ClientError, match="prefix match pattern must be a string") as raised:
        events.put_rule(Name="bad", EventPattern=pattern)
    assert raised.value.response["Error"]["Code"] == "InvalidEventPatternException"
    machines = Machines(running, "patterns")
    assert machines.output({"Only": {"Type": "Succeed"}}) == {}
