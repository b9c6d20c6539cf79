"""Where a namespace keeps its events and what else it knows, beside the log in its own data directory."""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.store.client.connection import KafkaError
    from tidegate.store.client.settings import ClientSettings, SettingsError, read_settings
    from tidegate.store.kafka.check import CheckReport, check_store
    from tidegate.store.kafka.copy import CopyError, SharedContent, SourceHub, SourcePartition, StoreCopy, Verified
    from tidegate.store.kafka.log import KafkaLog
    from tidegate.store.kafka.store import KafkaStore
else:
    # A task that reads a topic needs neither the hub's store nor its copies.
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CheckReport",
    "ClientSettings",
    "CopyError",
    "KafkaError",
    "KafkaLog",
    "KafkaStore",
    "SettingsError",
    "SharedContent",
    "SourceHub",
    "SourcePartition",
    "StoreCopy",
    "Verified",
    "check_store",
    "read_settings",
]
