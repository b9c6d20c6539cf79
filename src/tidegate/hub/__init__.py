"""The namespace without sockets: event hubs, partitions, consumer groups, access, placement, publishing, readers.

`Namespace` is the way in; `config` reads the official emulator's Config.json; every refusal is a `HubError` that knows
its AMQP condition.
"""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.hub.config import ConfigError, EventHubConfig, NamespaceConfig, load_config, parse_config
    from tidegate.hub.errors import HubError
    from tidegate.hub.namespace import Namespace
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ConfigError",
    "EventHubConfig",
    "HubError",
    "Namespace",
    "NamespaceConfig",
    "load_config",
    "parse_config",
]
