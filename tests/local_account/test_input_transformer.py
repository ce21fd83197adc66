"""What fills the template of a target, as LocalStack recorded it on AWS: tests/aws/services/events/test_events_inputs.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sagemaker_local_account.aws.events.input_transformer import InvalidInput, filled

ARN = "arn:aws:events:us-east-1:111111111111:rule/mine/nightly"
EVENT: dict[str, Any] = {
    "version": "0",
    "id": "7bf73129",
    "detail-type": "core.update-account-command",
    "source": "core.update-account-command",
    "account": "111111111111",
    "time": "2026-11-28T00:00:00Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {
        "command": "update-account",
        "payload": {"acc_id": "0a787ecb-4015", "sf_id": "baz"},
        "one": ["HIGH"],
        "two": ["ACTIVE", "INACTIVE"],
        "valid": True,
        "text": 'he said "no"',
    },
}
PATHS = {
    "userId": "$.detail.payload.acc_id",
    "payload": "$.detail.payload",
    "one": "$.detail.one",
    "two": "$.detail.two",
    "missing": "$.detail.awsAccountId",
    "valid": "$.detail.valid",
    "text": "$.detail.text",
}


@pytest.mark.parametrize(
    ("template", "delivered"),
    [
        (
            '{"method": "PUT", "path": "users-service/users/<userId>", "bod": <payload>}',
            {"method": "PUT", "path": "users-service/users/0a787ecb-4015", "bod": EVENT["detail"]["payload"]},
        ),
        ('{"id" : <userId>}', {"id": "0a787ecb-4015"}),
        ('{"id" : "<userId>"}', {"id": "0a787ecb-4015"}),
        ('{"bod": [<userId>, "hardcoded"]}', {"bod": ["0a787ecb-4015", "hardcoded"]}),
        ('{"one": <one>}', {"one": ["HIGH"]}),
        ('{"command": <missing>}', {"command": ""}),
        ('{"said": <text>, "again": "<text>"}', {"said": 'he said "no"', "again": 'he said "no"'}),
        ('{"rule": "<aws.events.rule-name>", "arn": <aws.events.rule-arn>}', {"rule": "nightly", "arn": ARN}),
        ('{"all": <aws.events.event.json>}', {"all": EVENT}),
    ],
)
def test_a_template_that_is_json_is_delivered_as_json(template: str, delivered: Any) -> None:
    assert json.loads(filled(template, PATHS, EVENT, ARN)) == delivered


@pytest.mark.parametrize(
    ("template", "delivered"),
    [
        ('"Event of <userId>"', '"Event of 0a787ecb-4015"'),
        ('"Payload of <payload> and <userId>"', '"Payload of {acc_id:0a787ecb-4015,sf_id:baz} and 0a787ecb-4015"'),
        ('"<one> single"\n"<two> multiple"', '"[HIGH] single"\n"[ACTIVE,INACTIVE] multiple"'),
        ('"<missing> system account id"', '" system account id"'),
        ('"Command is <valid>!"', '"Command is true!"'),
        ('"{[/special <userId>"', '"{[/special 0a787ecb-4015"'),
        (
            '"<aws.events.rule-arn> <aws.events.event.ingestion-time>"',
            f'"{ARN} 2026-11-28T00:00:00Z"',
        ),
    ],
)
def test_a_template_that_is_text_is_delivered_as_text(template: str, delivered: str) -> None:
    assert filled(template, PATHS, EVENT, ARN) == delivered


def test_the_event_without_its_detail_has_the_name_of_its_type_in_one_word() -> None:
    event = json.loads(filled('{"event": <aws.events.event>}', {}, EVENT, ARN))["event"]
    assert event.keys() == {"account", "detailType", "id", "region", "resources", "source", "time", "version"}


@pytest.mark.parametrize("template", ['{"payload": "<payload>"}', '{"one": "<one>"}'])
def test_an_object_within_quotes_of_json_is_not_delivered(template: str) -> None:
    with pytest.raises(InvalidInput, match="no JSON once it is filled"):
        filled(template, PATHS, EVENT, ARN)
