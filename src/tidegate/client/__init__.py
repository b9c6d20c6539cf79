"""Tidegate's blocking Event Hubs client, for the command line and for jobs, which read by sequence number.

It depends only on the AMQP core, so that `tidegate send`, `tail` and `lag` work without Spark and its dependencies.
"""

from tidegate.client.connection_string import (
    BusyError,
    ClientError,
    ConnectionLostError,
    ConnectionString,
    PublishError,
)
from tidegate.client.event import Delivery, Details
from tidegate.client.hub_client import HubClient, HubPartition, HubTopicAddress
from tidegate.client.producer import Publisher

__all__ = [
    "BusyError",
    "ClientError",
    "ConnectionLostError",
    "ConnectionString",
    "Delivery",
    "Details",
    "HubClient",
    "HubPartition",
    "HubTopicAddress",
    "PublishError",
    "Publisher",
]
