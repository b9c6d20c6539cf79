"""The section `[spark]`: where a job runs on Spark, and Spark's own settings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, field_validator

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.section import Public, SecretOptions, Section

DEFAULT_MASTER = "local[2]"
_CONFIGURED = "its settings say so"
PLACEMENT_VARIABLE = "TIDEGATE_PLACEMENT"
"""The environment variable that says where jobs run whose settings do not."""
# Settings of Spark that have a name of their own here, so that there is one place to look for them.
_OWN_SETTINGS = {
    "spark.master": "the setting 'master' of [spark] (or --master)",
    "spark.remote": "the setting 'master' of [spark] (or --master); a job needs a master, not a Spark Connect server",
}


class WhereRun(StrEnum):
    """Where the tasks and the keyed side of a job run."""

    SPARK = "spark"
    AUTO = "auto"
    PROCESS = "process"


def has_java() -> bool:
    """Return whether Spark can start on this machine, as far as that is known without trying."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None


_PUBLIC_PROPERTIES = (
    "spark.cores.max",
    "spark.driver.memory",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.local.dir",
    "spark.sql.shuffle.partitions",
    "spark.ui.port",
)


class SparkSettings(Section):
    """Where the job runs on Spark, and Spark's own settings; options of the command line take precedence."""

    master: Public | None = Field(
        default=None,
        min_length=1,
        description=f"Spark master URL, such as local[4] or spark://HOST:7077; default: {DEFAULT_MASTER}",
    )
    placement: WhereRun | None = Field(
        default=None,
        description="where the job runs: on Spark (spark), in its own process (process), or on Spark while it is too "
        f"big for its process (auto); default: what {PLACEMENT_VARIABLE} says, else spark",
    )
    shards: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="how many shards have the job's state on Spark; default: the cores, and fewer on more than 64",
    )
    max_events_per_step: int | None = Field(
        default=None,
        ge=1,
        description="how much of a backlog one step reads, on Spark or not; default: what takes about two seconds",
    )
    ui: bool = Field(default=False, description="serve Spark's web UI while the job runs; its address is logged")
    conf: Annotated[dict[str, str], SecretOptions(_PUBLIC_PROPERTIES)] = Field(
        default_factory=dict, description='Spark configuration properties, such as "spark.executor.memory" = "4g"'
    )

    @field_validator("conf", mode="before")
    @classmethod
    def _as_spark_writes_them(cls, content: Any) -> dict[str, str]:
        """Return properties as Spark's text; without quotes, TOML reads a dotted name as nested tables."""
        if not isinstance(content, Mapping):
            raise ValueError('a table is expected, such as "spark.executor.memory" = "4g"')
        return {checked_property(name): _text(name, value) for name, value in _flat(content)}

    @property
    def where(self) -> WhereRun:
        """Where the job runs: on Spark, unless its owner says otherwise."""
        return self._decided[0]

    @property
    def why(self) -> str:
        """Why it runs there."""
        return self._decided[1]

    @property
    def _decided(self) -> tuple[WhereRun, str]:
        if self.placement is not None:
            return self.placement, _CONFIGURED
        if self.master is not None or self.ui:
            return WhereRun.SPARK, _CONFIGURED
        if (named := os.environ.get(PLACEMENT_VARIABLE)) is not None:
            return _named(named), f"{PLACEMENT_VARIABLE} says so"
        if not self.conf and not has_java():
            # Nobody has asked for Spark, so a machine without Java is no reason to fail.
            return WhereRun.PROCESS, "there is no Java on this machine, which Spark needs (Java 17 or newer)"
        return WhereRun.SPARK, "jobs run on Spark unless their settings say otherwise"

    def overridden(
        self, *, master: str | None, ui: bool, conf: Mapping[str, str], placement: WhereRun | None = None
    ) -> SparkSettings:
        """Return the settings with those of a command line in their place; one that was not given changes nothing."""
        return self.model_copy(
            update={
                "master": master or self.master,
                "ui": ui or self.ui,
                "conf": {**self.conf, **conf},
                "placement": placement or self.placement,
            }
        )


def _named(text: str) -> WhereRun:
    try:
        return WhereRun(text)
    except ValueError:
        known = ", ".join(one.value for one in WhereRun)
        raise JobError(f"the environment variable {PLACEMENT_VARIABLE} is '{text}'; set it to one of {known}") from None


def checked_property(name: str) -> str:
    """Return the name of a Spark configuration property.

    Raises:
        ValueError: Spark would ignore it, or it has a setting of its own here.
    """
    if name in _OWN_SETTINGS:
        raise ValueError(f"'{name}' cannot be set here; use {_OWN_SETTINGS[name]}")
    if not name.startswith("spark.") or name != name.strip() or name == "spark.":
        hint = "" if not name.strip() or name.startswith("spark") else f"; did you mean 'spark.{name.strip()}'?"
        raise ValueError(f"'{name}' is no Spark property: their names start with 'spark.'{hint}")
    return name


def parse_property(text: str) -> tuple[str, str]:
    """Return the name and value of a property written KEY=VALUE.

    Raises:
        ValueError: it is not; the message never has the value, which may be a secret.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected KEY=VALUE, such as spark.executor.memory=4g, got '{name}'")
    return checked_property(name.strip()), value.strip()


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"'{name}' is a text, a number, true or false, got a {type(value).__name__}")
