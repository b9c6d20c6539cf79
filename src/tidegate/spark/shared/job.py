"""A job's part of a Spark that it shares with others."""

from __future__ import annotations

from tidegate.engine import Program
from tidegate.job.run.opening import OpenRun
from tidegate.job.runtime.placement import Placement
from tidegate.spark.calls import StepThread
from tidegate.spark.executors import shards_for
from tidegate.spark.placement import PlacementSettings, SparkPlacement
from tidegate.spark.shared.attachment import Attachment, SparkAddress


class JobOnSharedSpark:
    """A session of the job's own, and the placements in it."""

    def __init__(self, opened: OpenRun, address: SparkAddress) -> None:
        """Attach to it.

        Raises:
            UnavailableError: it cannot be reached.
        """
        self._opened = opened
        self._thread = StepThread()
        definition = opened.job.definition
        own_workers = bool(definition.functions) or any(
            getattr(section, "deserializer", None) for section in definition.inputs.values()
        )
        self._attachment: Attachment = self._thread.call(lambda: Attachment.to(address, own_workers=own_workers))

    def placement(self, program: Program) -> Placement:
        """Return a placement with empty states."""
        opened, attachment = self._opened, self._attachment
        definition, context = opened.job.definition, attachment.session.sparkContext
        settings = PlacementSettings(
            definition.spark.shards or shards_for(context.defaultParallelism),
            opened.folder,
            opened.encoders,
            name=definition.name,
            master=str(context.master),
            may_differ=definition.spark.shards is None,
            owner=attachment.owner,
        )
        return SparkPlacement(attachment.session, program, opened.job.policy, settings, self._thread)

    def close(self) -> None:
        """Detach from it; it stays."""
        self._attachment.detach()
