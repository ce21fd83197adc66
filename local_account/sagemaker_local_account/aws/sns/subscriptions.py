"""SNS: delivery to queues, functions, and HTTP endpoints of this machine, and messages that are refused.

Refused is what LocalStack recorded on AWS (test_empty_sns_message, _publish_with_empty_subject, _publish_too_long_message and
_message_structure_json_exc); what a function gets is that of test_python_lambda_subscribe_sns_topic, and what a subscription's
dead-letter queue gets that of test_redrive_policy_sqs_queue_subscription.

Messages do not leave this machine: a subscription by e-mail or SMS, or to another machine, is accepted, and each message that is
not delivered is logged. Other protocols are rejected by name.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import logging
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
from moto.sns.exceptions import SNSInvalidParameter
from moto.sns.models import SNSBackend, Subscription

from sagemaker_local_account.aws.events import invocations
from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call

SERVICE = "sns.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_publish = Subscription.publish
_moto_publish_to_topic = SNSBackend.publish
_moto_subscribe = SNSBackend.subscribe
_moto_set_subscription_attributes = SNSBackend.set_subscription_attributes

_WEB = ("http", "https")
_TO_PEOPLE = ("email", "email-json", "sms")
_MOST_BYTES = 262_144  # of a message with its attributes
_Deliver = Callable[[Subscription, str, str, dict[str, Any]], None]  # a message, its id and its other members
_HTTP_SECONDS = 15.0  # SNS's timeout for an endpoint


class _Installed:
    """The authorizer of the running account, which evaluates the policies of queues and functions."""

    authorizer: Authorizer


def install(authorizer: Authorizer) -> None:
    """Patches moto's SNS."""
    _Installed.authorizer = authorizer
    patch(SNSBackend, "subscribe", _subscribe, "self, topic_arn, endpoint, protocol")
    patch(SNSBackend, "set_subscription_attributes", _set_subscription_attributes, "self, arn, name, value")
    patch(
        SNSBackend,
        "publish",
        _publish_to_topic,
        "self, message, arn, phone_number, subject, message_attributes, group_id, deduplication_id, message_structure",
    )
    patch(
        Subscription,
        "publish",
        _publish,
        "self, message, message_id, subject, message_attributes, group_id, deduplication_id, message_structure",
    )


def undeliverable(protocol: str, endpoint: str) -> str:
    """Returns the reason why messages are not delivered to an endpoint, or ""."""
    if protocol in _TO_PEOPLE:
        return f"the account does not send {protocol}"
    if protocol in _WEB and (urlsplit(endpoint).hostname or "") not in ("localhost", "127.0.0.1", "::1"):
        return "the account does not send to other machines"
    return ""


def _subscribe(self: SNSBackend, topic_arn: str, endpoint: str, protocol: str) -> Subscription:
    if protocol not in ("sqs", "lambda", *_WEB, *_TO_PEOPLE):
        raise SNSInvalidParameter(
            f"Invalid parameter: Protocol must be sqs, lambda, http, https, email, email-json or sms in the local account, "
            f"got {protocol!r}"
        )
    why = undeliverable(protocol, endpoint)
    if why:
        _log.warning("subscription of %s to %s is inert: %s", endpoint, topic_arn, why)
    subscription: Subscription = _moto_subscribe(self, topic_arn, endpoint, protocol)
    return subscription


def _set_subscription_attributes(self: SNSBackend, arn: str, name: str, value: Any) -> None:
    """Parses RawMessageDelivery, of which moto treats "false" as true."""
    raw = name == "RawMessageDelivery"
    _moto_set_subscription_attributes(self, arn, name, str(value).lower() == "true" if raw else value)


def _publish_to_topic(self: SNSBackend, message: str, arn: str | None, *args: Any, **details: Any) -> str:
    if not message:
        raise SNSInvalidParameter("Invalid parameter: Empty message")
    if details.get("subject") == "":
        raise SNSInvalidParameter("Invalid parameter: Subject")
    attributes = details.get("message_attributes") or {}
    if len(message.encode()) + sum(_bytes_of(name, one) for name, one in attributes.items()) > _MOST_BYTES:
        raise SNSInvalidParameter("Invalid parameter: Message too long")
    if details.get("message_structure") == "json":
        _check_structure(message)
    message_id: str = _moto_publish_to_topic(self, message, arn, *args, **details)
    return message_id


def _bytes_of(name: str, attribute: Any) -> int:
    return sum(len(part if isinstance(part, bytes) else str(part).encode()) for part in (name, *attribute.values()))


def _check_structure(message: str) -> None:
    """A message of a text for each protocol has a default."""
    try:
        texts = json.loads(message)
    except ValueError:
        text = "Invalid parameter: Message Structure - JSON message body failed to parse"
        raise SNSInvalidParameter(text) from None
    if not isinstance(texts, dict) or not isinstance(texts.get("default"), str):
        raise SNSInvalidParameter("Invalid parameter: Message Structure - No default entry in JSON message body")


def _publish(self: Subscription, message: str, message_id: str, **details: Any) -> None:
    """Delivers to one subscription; in moto the first failure ends the delivery to all, and HTTP has no timeout."""
    why = undeliverable(self.protocol, self.endpoint)
    if why:
        _log.warning("%s: message %s not delivered to %s: %s", self.topic.arn, message_id, self.endpoint, why)
        return
    if self.protocol in _WEB:
        threading.Thread(
            target=_tried, args=(_post, self, message, message_id, details), name=f"sns {message_id}", daemon=True
        ).start()
    else:
        _tried(_invoke if self.protocol == "lambda" else _send, self, message, message_id, details)


def _send(subscription: Subscription, message: str, message_id: str, details: dict[str, Any]) -> None:
    """Sends to a queue; the bytes of a message's own attributes, which moto leaves in base 64."""
    _permit(subscription, Call("sqs:SendMessage", subscription.endpoint))
    attributes = details.get("message_attributes") or {}
    if subscription.attributes.get("RawMessageDelivery"):
        attributes = {
            name: {**one, "Value": base64.b64decode(one["Value"])} if one["Type"].startswith("Binary") else one
            for name, one in attributes.items()
        }
    _moto_publish(subscription, message, message_id, **{**details, "message_attributes": attributes})


def _text_for(subscription: Subscription, message: str, details: dict[str, Any]) -> str | None:
    """The message for a subscription; None where its filter does not let it through."""
    matcher = subscription._filter_policy_matcher
    if matcher is not None and not matcher.matches(details.get("message_attributes"), message):
        return None
    if details.get("message_structure") == "json":
        return str(subscription._parse_message_structure(message, subscription.protocol))
    return message


def _invoke(subscription: Subscription, message: str, message_id: str, details: dict[str, Any]) -> None:
    """Invokes a function, asynchronously, with the event of a message."""
    text = _text_for(subscription, message, details)
    if text is None:
        return
    posted = subscription.get_post_data(text, message_id, details.get("subject"), details.get("message_attributes"))
    posted["SigningCertUrl"], posted["UnsubscribeUrl"] = posted.pop("SigningCertURL"), posted.pop("UnsubscribeURL")
    record = {
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": subscription.arn,
        "Sns": {"Subject": None, "MessageAttributes": {}, **posted},
    }

    permit = functools.partial(_permit, subscription)
    invocations.invoke(subscription.endpoint, json.dumps({"Records": [record]}), permit)


def _permit(subscription: Subscription, call: Call) -> None:
    _Installed.authorizer.check_service(SERVICE, call, subscription.topic.arn)


def _post(subscription: Subscription, message: str, message_id: str, details: dict[str, Any]) -> None:
    text = _text_for(subscription, message, details)
    if text is None:
        return
    raw = subscription.attributes.get("RawMessageDelivery") is True
    body: Any = text if raw else subscription.get_post_data(text, message_id, details.get("subject"))
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": subscription.topic.arn,
        "x-amz-sns-subscription-arn": subscription.arn,
        **({"x-amz-sns-rawdelivery": "true"} if raw else {}),
    }
    sent = {"data": body.encode()} if raw else {"json": body}
    requests.post(subscription.endpoint, headers=headers, timeout=_HTTP_SECONDS, **sent).raise_for_status()


def _tried(
    deliver: _Deliver, subscription: Subscription, message: str, message_id: str, details: dict[str, Any]
) -> None:
    """Delivers; what cannot be delivered is logged, and goes to the subscription's dead-letter queue."""
    try:
        deliver(subscription, message, message_id, details)
    except Exception as error:
        _failed(subscription, message_id, subscription.endpoint, error)
        text = _text_for(subscription, message, details)
        queue = json.loads(subscription.attributes.get("RedrivePolicy") or "{}").get("deadLetterTargetArn")
        if text is None or queue is None:
            return
        dead = copy.copy(subscription)
        dead.protocol, dead.endpoint, dead._filter_policy_matcher = "sqs", queue, None
        try:
            _send(dead, text, message_id, {**details, "message_structure": None})
        except Exception as error:
            _failed(subscription, message_id, f"the dead-letter queue {queue}", error)


def _failed(subscription: Subscription, message_id: str, to: str, error: Exception) -> None:
    log_failure(_log, error, "%s: message %s not delivered to %s", subscription.topic.arn, message_id, to)
