"""SNS's resources in CloudFormation: topics, subscriptions, and the policies of topics.

moto's CloudFormation has no subscriptions and policies; its topics have no TopicArn, and lose their subscriptions in updates.
"""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.sns.models import sns_backends
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true
from sagemaker_local_account.aws.resource_types import ServiceResources, real

# The properties of a topic: the attribute of moto's.
_TOPIC = {
    "ContentBasedDeduplication": "content_based_deduplication",
    "DisplayName": "display_name",
    "FifoTopic": "fifo_topic",
    "KmsMasterKeyId": "kms_master_key_id",
    "SignatureVersion": "signature_version",
    "TracingConfig": "tracing_config",
}


class Topic(ResourceBase):
    """AWS::SNS::Topic."""

    @override
    def create(self) -> None:
        name = self.properties.get("TopicName", self.physical_resource_id)
        fifo = is_true(self.properties.get("FifoTopic", False))
        if fifo and not name.endswith(".fifo"):
            name = f"{name}.fifo"
        topics = sns_backends[self.account_id][self.region_name]
        if any(topic.name == name for topic in topics.topics.values()):
            raise ValidationError(message=f"topic {name} already exists")
        self.physical_resource_id = topics.create_topic(name, {"FifoTopic": True} if fifo else {}).arn
        self._set()

    @override
    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("TopicName", "FifoTopic")):
            raise NotImplementedError
        topics = sns_backends[self.account_id][self.region_name]
        kept = [(one["Endpoint"], one["Protocol"]) for one in self.properties.get("Subscription", [])]
        gone = [(one["Endpoint"], one["Protocol"]) for one in former.get("Subscription", [])]
        for subscription in [*topics.subscriptions.values()]:
            own = subscription.topic.arn == self.physical_resource_id
            if own and (subscription.endpoint, subscription.protocol) in set(gone) - set(kept):
                topics.unsubscribe(subscription.arn)
        self._set()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        sns_backends[account_id][region_name].delete_topic(self.physical_resource_id)

    @override
    def attributes(self) -> dict[str, str]:
        return {"TopicArn": self.physical_resource_id, "TopicName": self.physical_resource_id.rpartition(":")[2]}

    def _set(self) -> None:
        topics = sns_backends[self.account_id][self.region_name]
        topic = topics.get_topic(self.physical_resource_id)
        for name, attribute in _TOPIC.items():
            if name != "FifoTopic":
                setattr(topic, attribute, self.properties.get(name, "" if name == "DisplayName" else None))
        topic._tags = {tag["Key"]: tag["Value"] for tag in self.properties.get("Tags", [])}
        for subscription in self.properties.get("Subscription", []):
            topics.subscribe(topic.arn, subscription["Endpoint"], subscription["Protocol"])


# The attributes of a subscription, which may be objects in a template; the scope is set before the policy.
_SUBSCRIPTION = ("RawMessageDelivery", "FilterPolicyScope", "FilterPolicy", "DeliveryPolicy", "RedrivePolicy")


_NONE = {"RawMessageDelivery": "false"}


class Subscription(ResourceBase):
    """AWS::SNS::Subscription."""

    @override
    def create(self) -> None:
        subscription = self._backend.subscribe(
            self.properties["TopicArn"], self.properties["Endpoint"], self.properties["Protocol"]
        )
        self.physical_resource_id = subscription.arn
        self._set()

    @override
    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("TopicArn", "Endpoint", "Protocol")):
            raise NotImplementedError
        for name in _SUBSCRIPTION:
            if name in former and name not in self.properties:
                self._backend.set_subscription_attributes(self.physical_resource_id, name, _NONE.get(name, ""))
                if name not in _NONE:
                    del self._backend.subscriptions[self.physical_resource_id].attributes[name]
        self._set()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.unsubscribe(self.physical_resource_id)

    def _set(self) -> None:
        for name in _SUBSCRIPTION:
            if name in self.properties:
                value = self.properties[name]
                text = json.dumps(value) if isinstance(value, dict) else str(value)
                self._backend.set_subscription_attributes(self.physical_resource_id, name, text)

    @property
    def _backend(self) -> Any:
        return sns_backends[self.account_id][self.properties["TopicArn"].split(":")[3]]


class TopicPolicy(ResourceBase):
    """AWS::SNS::TopicPolicy."""

    @override
    def create(self) -> None:
        for topic in self._topics(self.properties):
            topic.policy = json.dumps(self.properties["PolicyDocument"])

    @override
    def update(self, former: Properties) -> None:
        gone = [arn for arn in former["Topics"] if arn not in self.properties["Topics"]]
        self._forget({"Topics": gone})
        self.create()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._forget(self.properties)

    def _forget(self, properties: Properties) -> None:
        for topic in self._topics(properties):
            topic._policy_json = topic._create_default_topic_policy(self.region_name, self.account_id, topic.name)

    def _topics(self, properties: Properties) -> list[Any]:
        topics = sns_backends[self.account_id][self.region_name]
        return [topics.get_topic(arn) for arn in properties["Topics"]]


RESOURCES = ServiceResources(
    types={
        "AWS::SNS::Subscription": real(
            "delivers to queues, functions and HTTP endpoints of this machine, or else to the dead-letter queue; messages to "
            "e-mail, SMS and other machines are logged and not delivered; other protocols are rejected",
            "DeliveryPolicy Endpoint FilterPolicy FilterPolicyScope Protocol RawMessageDelivery RedrivePolicy TopicArn",
            made_by=Subscription,
        ),
        "AWS::SNS::Topic": real(
            "delivers to its subscriptions; without encryption, but its key's policy is evaluated",
            "ContentBasedDeduplication DisplayName FifoTopic KmsMasterKeyId Subscription Tags TopicName",
            made_by=Topic,
            longest_name=256,
        ),
        "AWS::SNS::TopicPolicy": real("evaluated", "PolicyDocument Topics", made_by=TopicPolicy),
    },
)
