"""A cluster of Kafka as a section of the job file names it: what inputs from topics and outputs to them share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from tidegate.client import ConnectionString
from tidegate.connectors.model.kinds import KindSection
from tidegate.connectors.model.section import Public, Secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_EVENT_HUBS_PORT = 9093
# The library writes to standard error otherwise, and all of it again as errors of calls.
SILENT = logging.getLogger("tidegate.kafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


class KafkaClusterSection(KindSection):
    """A section with a topic of a cluster, and how the job signs in there."""

    bootstrap_servers: Public | None = Field(default=None, description="`host:port`, separated by commas")
    connection_string: Secret | None = Field(
        default=None, description="of an Event Hubs namespace, instead of bootstrap_servers and a password"
    )
    topic: Public
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        default="plaintext", description="how the brokers are reached"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="how the job signs in, with sasl_plaintext and sasl_ssl"
    )
    username: Public | None = Field(default=None, description="for signing in")
    password: Secret | None = Field(default=None, description="for signing in")

    @model_validator(mode="after")
    def _one_address(self) -> KafkaClusterSection:
        if (self.bootstrap_servers is None) == (self.connection_string is None):
            raise ValueError("give either 'bootstrap_servers' or 'connection_string', one of the two")
        if "sasl" in self.security_protocol and (self.username is None or self.password is None):
            raise ValueError(f"{self.security_protocol} needs 'username' and 'password'")
        return self

    def cluster_settings(self) -> dict[str, Any]:
        """Return librdkafka's settings for the connection. Raises ClientError."""
        if self.connection_string is not None:
            host = ConnectionString.parse(self.connection_string, self.topic).host
            return {
                "bootstrap.servers": f"{host}:{_EVENT_HUBS_PORT}",
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "$ConnectionString",
                "sasl.password": self.connection_string,
            }
        settings = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.security_protocol}
        if "sasl" in self.security_protocol:
            signs_in = {"mechanism": self.sasl_mechanism, "username": self.username, "password": self.password}
            settings |= {f"sasl.{name}": value for name, value in signs_in.items()}
        return settings


def refusals() -> frozenset[int]:
    """Return the codes that another attempt to connect, or to use a topic, would get again."""
    from confluent_kafka import KafkaError

    return frozenset(
        {
            KafkaError._AUTHENTICATION,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError._INVALID_ARG,
        }
    )


def reason_of(error: KafkaError, trouble: KafkaError | None) -> KafkaError:
    """Return the reason behind an error of a call: the trouble that the library has reported, if it only timed out."""
    from confluent_kafka import KafkaError

    is_vague = error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._FAIL, KafkaError._FATAL)
    return trouble if is_vague and trouble is not None else error
