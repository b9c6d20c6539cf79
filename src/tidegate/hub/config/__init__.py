"""What a namespace is configured with: its model, and the official emulator's Config.json from which it is read."""

from tidegate.hub.config.emulator_file import load_config, parse_config
from tidegate.hub.config.model import (
    DEFAULT_CONSUMER_GROUP,
    MAX_CONSUMER_GROUPS,
    MAX_PARTITIONS,
    MAX_RETENTION_HOURS,
    MAX_THROUGHPUT_UNITS,
    MAX_USER_METADATA_CHARACTERS,
    MS_PER_HOUR,
    ConfigError,
    EventHubConfig,
    NamespaceConfig,
    NamespaceLimits,
    Tier,
    check_group_name,
    check_groups,
    check_hub_name,
)

__all__ = [
    "DEFAULT_CONSUMER_GROUP",
    "MAX_CONSUMER_GROUPS",
    "MAX_PARTITIONS",
    "MAX_RETENTION_HOURS",
    "MAX_THROUGHPUT_UNITS",
    "MAX_USER_METADATA_CHARACTERS",
    "MS_PER_HOUR",
    "ConfigError",
    "EventHubConfig",
    "NamespaceConfig",
    "NamespaceLimits",
    "Tier",
    "check_group_name",
    "check_groups",
    "check_hub_name",
    "load_config",
    "parse_config",
]
