"""The input type `iothub`."""

from __future__ import annotations

from typing import Literal

from tidegate.connectors.inputs.event_hub import HubSettings
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.connectors.inputs.kinds import INPUTS, LogOpening
from tidegate.connectors.model.events import InputLog


@INPUTS.register
class IotHubInput(HubSettings):
    """Messages of devices, from the Event Hubs-compatible endpoint of an IoT hub. A message arrives at its
    ``IoTHub.EnqueuedTime``."""

    type: Literal["iothub"]

    def open_log(self, opening: LogOpening) -> InputLog:
        log = HubLog.connect(
            self.connection_string,
            self.event_hub,
            self.consumer_group,
            use_segments=self.segments == "auto",
            cluster=self.cluster_access(),
            body_format=self.body_format(opening.limits),
            of_devices=True,
            patient=opening.patient,
            job=opening.job,
        )
        log.registry = self.registry()
        return log
