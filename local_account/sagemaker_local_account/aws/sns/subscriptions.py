"""SNS: delivery to queues, and to HTTP endpoints of this machine.

Messages do not leave this machine: a subscription by e-mail or SMS, or to another machine, is accepted, and each message that is
not delivered is logged. Other protocols are rejected by name.
"""

from __future__ import annotations

import logging
import threading
from typing import Any
from urllib.parse import urlsplit

import requests
from moto.sns.exceptions import SNSInvalidParameter
from moto.sns.models import SNSBackend, Subscription

from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call

SERVICE = "sns.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_publish = Subscription.publish
_moto_subscribe = SNSBackend.subscribe
_moto_set_subscription_attributes = SNSBackend.set_subscription_attributes

_WEB = ("http", "https")
_TO_PEOPLE = ("email", "email-json", "sms")
_HTTP_SECONDS = 15.0  # SNS's timeout for an endpoint


class _Installed:
    """The authorizer of the running account, which evaluates queue policies."""

    authorizer: Authorizer


def install(authorizer: Authorizer) -> None:
    """Patches moto's SNS."""
    _Installed.authorizer = authorizer
    patch(SNSBackend, "subscribe", _subscribe, "self, topic_arn, endpoint, protocol")
    patch(SNSBackend, "set_subscription_attributes", _set_subscription_attributes, "self, arn, name, value")
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
    if protocol not in ("sqs", *_WEB, *_TO_PEOPLE):
        raise SNSInvalidParameter(
            f"Invalid parameter: Protocol must be sqs, http, https, email, email-json or sms in the local account, "
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


def _publish(self: Subscription, message: str, message_id: str, **details: Any) -> None:
    """Delivers to one subscription; in moto the first failure ends the delivery to all, and HTTP has no timeout."""
    why = undeliverable(self.protocol, self.endpoint)
    if why:
        _log.warning("%s: message %s not delivered to %s: %s", self.topic.arn, message_id, self.endpoint, why)
        return
    if self.protocol in _WEB:
        threading.Thread(
            target=_post, args=(self, message, message_id, details), name=f"sns {message_id}", daemon=True
        ).start()
        return

    def send() -> None:
        call = Call("sqs:SendMessage", self.endpoint)
        _Installed.authorizer.check_service(SERVICE, call, self.topic.arn)
        _moto_publish(self, message, message_id, **details)

    _tried(self, message_id, send)


def _post(subscription: Subscription, message: str, message_id: str, details: dict[str, Any]) -> None:
    matcher = subscription._filter_policy_matcher
    if matcher is not None and not matcher.matches(details.get("message_attributes"), message):
        return
    if details.get("message_structure") == "json":
        message = subscription._parse_message_structure(message, subscription.protocol)
    raw = subscription.attributes.get("RawMessageDelivery") is True
    body: Any = message if raw else subscription.get_post_data(message, message_id, details.get("subject"))
    headers = {
        "Content-Type": "text/plain; charset=UTF-8",
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": subscription.topic.arn,
        "x-amz-sns-subscription-arn": subscription.arn,
        **({"x-amz-sns-rawdelivery": "true"} if raw else {}),
    }
    sent = {"data": body.encode()} if raw else {"json": body}
    _tried(
        subscription,
        message_id,
        lambda: requests.post(subscription.endpoint, headers=headers, timeout=_HTTP_SECONDS, **sent).raise_for_status(),
    )


def _tried(subscription: Subscription, message_id: str, deliver: Any) -> None:
    try:
        deliver()
    except Exception as error:
        log_failure(
            _log, error, "%s: message %s not delivered to %s", subscription.topic.arn, message_id, subscription.endpoint
        )
