"""A blocking Event Hubs client of our own: for jobs, which read stretches by number, and for the command line.

It needs nothing but the AMQP core, so that `tidegate send`, `tail` and `lag` work without Spark and its companions.
"""

from tidegate.client.connection_string import ConnectionString
from tidegate.client.errors import ClientError, ConnectionLostError, PublishError
from tidegate.client.event import Delivery, Details
from tidegate.client.hub_client import HubClient, HubPartition
from tidegate.client.publisher import Publisher

__all__ = [
    "ClientError",
    "ConnectionLostError",
    "ConnectionString",
    "Delivery",
    "Details",
    "HubClient",
    "HubPartition",
    "PublishError",
    "Publisher",
]
