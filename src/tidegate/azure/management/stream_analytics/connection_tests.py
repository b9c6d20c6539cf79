"""Whether an input or output can be reached: what the API's test operations ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegate import outbound
from tidegate.azure.management.access.requests import ArmError
from tidegate.client.connection_string import ClientError, ConnectionString
from tidegate.client.hub_client import HubClient


def reach(section: Mapping[str, Any], *, is_input: bool) -> None:
    """Try to reach what a section of a job file describes. Raises ArmError, which says why it cannot be."""
    try:
        outbound.check_settings(section)
    except outbound.AddressRefused as error:
        raise ArmError(400, "ConnectionFailed", str(error)) from None
    if "connection_string" in section and section["type"] in ("eventhub", "iothub"):
        try:
            client = HubClient(ConnectionString.parse(section["connection_string"], section.get("event_hub")))
            try:
                partitions = client.partition_ids()
                if is_input:
                    client.check_group(section.get("consumer_group") or "$Default", partitions[0])
            finally:
                client.close()
        except (ClientError, OSError) as error:
            raise ArmError(400, "ConnectionFailed", str(error)) from None
    path = section.get("path")
    if isinstance(path, str) and "://" not in path and is_input and not Path(path).exists():
        raise ArmError(400, "NotFound", f"there is no {path}")
