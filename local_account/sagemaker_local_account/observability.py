"""CloudFormation's alarms, topics, subscriptions and their policies, and the policies of queues.

moto's CloudFormation has no alarms, subscriptions and policies; its topics have no TopicArn, and lose their subscriptions
when they are changed.
"""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudwatch.models import cloudwatch_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends

from .emulated import Emulated, Properties

# An alarm's property, the parameter of moto's put_metric_alarm, and what it is made of what a template says.
_ALARM: dict[str, tuple[str, Any]] = {
    "ActionsEnabled": ("actions_enabled", lambda value: str(value).lower() == "true"),
    "AlarmActions": ("alarm_actions", list),
    "AlarmDescription": ("description", str),
    "ComparisonOperator": ("comparison_operator", str),
    "DatapointsToAlarm": ("datapoints_to_alarm", int),
    "Dimensions": ("dimensions", list),
    "EvaluateLowSampleCountPercentile": ("evaluate_low_sample_count_percentile", str),
    "EvaluationPeriods": ("evaluation_periods", int),
    "ExtendedStatistic": ("extended_statistic", str),
    "InsufficientDataActions": ("insufficient_data_actions", list),
    "MetricName": ("metric_name", str),
    "Metrics": ("metric_data_queries", list),
    "Namespace": ("namespace", str),
    "OKActions": ("ok_actions", list),
    "Period": ("period", int),
    "Statistic": ("statistic", str),
    "Tags": ("tags", list),
    "Threshold": ("threshold", float),
    "ThresholdMetricId": ("threshold_metric_id", str),
    "TreatMissingData": ("treat_missing_data", str),
    "Unit": ("unit", str),
}
_EVERY_ALARM: dict[str, Any] = {
    "actions_enabled": True,
    "alarm_actions": [],
    "comparison_operator": None,
    "description": None,
    "dimensions": [],
    "evaluation_periods": None,
    "metric_name": None,
    "namespace": None,
    "period": None,
    "statistic": None,
    "threshold": None,
}


class MetricAlarm(Emulated):
    """AWS::CloudWatch::Alarm."""

    def create(self) -> None:
        self.physical_resource_id = self.properties.get("AlarmName", self.physical_resource_id)
        if self.physical_resource_id in self._backend.alarms:
            raise ValidationError(message=f"{self.physical_resource_id} already exists")
        self._put()

    def update(self, former: Properties) -> None:
        if self.properties.get("AlarmName") != former.get("AlarmName"):
            raise NotImplementedError
        self._put()

    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_alarms([self.physical_resource_id])

    def attributes(self) -> dict[str, str]:
        return {"Arn": self._backend.alarms[self.physical_resource_id].alarm_arn}

    def _put(self) -> None:
        said = {member: of(self.properties[name]) for name, (member, of) in _ALARM.items() if name in self.properties}
        self._backend.put_metric_alarm(name=self.physical_resource_id, **{**_EVERY_ALARM, **said})

    @property
    def _backend(self) -> Any:
        return cloudwatch_backends[self.account_id][self.region_name]


# A topic's property, and the attribute of moto's topic that it is.
_TOPIC = {
    "ContentBasedDeduplication": "content_based_deduplication",
    "DisplayName": "display_name",
    "FifoTopic": "fifo_topic",
    "KmsMasterKeyId": "kms_master_key_id",
    "SignatureVersion": "signature_version",
    "TracingConfig": "tracing_config",
}


class Topic(Emulated):
    """AWS::SNS::Topic."""

    def create(self) -> None:
        name = self.properties.get("TopicName", self.physical_resource_id)
        fifo = _true(self.properties.get("FifoTopic", False))
        if fifo and not name.endswith(".fifo"):
            name = f"{name}.fifo"
        topics = sns_backends[self.account_id][self.region_name]
        if any(topic.name == name for topic in topics.topics.values()):
            raise ValidationError(message=f"topic {name} already exists")
        self.physical_resource_id = topics.create_topic(name, {"FifoTopic": True} if fifo else {}).arn
        self._set()

    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("TopicName", "FifoTopic")):
            raise NotImplementedError
        self._set()

    def delete(self, account_id: str, region_name: str) -> None:
        sns_backends[account_id][region_name].delete_topic(self.physical_resource_id)

    def attributes(self) -> dict[str, str]:
        return {"TopicArn": self.physical_resource_id, "TopicName": self.physical_resource_id.rpartition(":")[2]}

    def _set(self) -> None:
        topics = sns_backends[self.account_id][self.region_name]
        topic = topics.get_topic(self.physical_resource_id)
        for name, attribute in _TOPIC.items():
            if name in self.properties and name != "FifoTopic":
                setattr(topic, attribute, self.properties[name])
        topic._tags = {tag["Key"]: tag["Value"] for tag in self.properties.get("Tags", [])}
        for subscription in self.properties.get("Subscription", []):
            topics.subscribe(topic.arn, subscription["Endpoint"], subscription["Protocol"])


# Attributes of a subscription that are JSON in the API and may be objects in a template; the scope is set before the policy.
_SUBSCRIPTION = ("RawMessageDelivery", "FilterPolicyScope", "FilterPolicy", "DeliveryPolicy")


class Subscription(Emulated):
    """AWS::SNS::Subscription."""

    def create(self) -> None:
        subscription = self._backend.subscribe(
            self.properties["TopicArn"], self.properties["Endpoint"], self.properties["Protocol"]
        )
        self.physical_resource_id = subscription.arn
        self._set()

    def update(self, former: Properties) -> None:
        if any(self.properties.get(name) != former.get(name) for name in ("TopicArn", "Endpoint", "Protocol")):
            raise NotImplementedError
        for name in _SUBSCRIPTION:
            if name in former and name not in self.properties:
                self._backend.set_subscription_attributes(self.physical_resource_id, name, "")
        self._set()

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


class TopicPolicy(Emulated):
    """AWS::SNS::TopicPolicy."""

    def create(self) -> None:
        for topic in self._topics(self.properties):
            topic.policy = json.dumps(self.properties["PolicyDocument"])

    def update(self, former: Properties) -> None:
        gone = [arn for arn in former["Topics"] if arn not in self.properties["Topics"]]
        self._forget({"Topics": gone})
        self.create()

    def delete(self, account_id: str, region_name: str) -> None:
        self._forget(self.properties)

    def _forget(self, properties: Properties) -> None:
        for topic in self._topics(properties):
            topic._policy_json = topic._create_default_topic_policy(self.region_name, self.account_id, topic.name)

    def _topics(self, properties: Properties) -> list[Any]:
        topics = sns_backends[self.account_id][self.region_name]
        return [topics.get_topic(arn) for arn in properties["Topics"]]


class QueuePolicy(Emulated):
    """AWS::SQS::QueuePolicy."""

    def create(self) -> None:
        for queue in self._queues(self.properties):
            queue.policy = json.dumps(self.properties["PolicyDocument"])

    def update(self, former: Properties) -> None:
        gone = [url for url in former["Queues"] if url not in self.properties["Queues"]]
        self._forget({"Queues": gone})
        self.create()

    def delete(self, account_id: str, region_name: str) -> None:
        self._forget(self.properties)

    def _forget(self, properties: Properties) -> None:
        for queue in self._queues(properties):
            queue.policy = None

    def _queues(self, properties: Properties) -> list[Any]:
        queues = sqs_backends[self.account_id][self.region_name]
        return [queues.get_queue(url.rpartition("/")[2]) for url in properties["Queues"]]


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


NATIVE: dict[str, Any] = {
    "AWS::CloudWatch::Alarm": MetricAlarm,
    "AWS::SNS::Subscription": Subscription,
    "AWS::SNS::Topic": Topic,
    "AWS::SNS::TopicPolicy": TopicPolicy,
    "AWS::SQS::QueuePolicy": QueuePolicy,
}
