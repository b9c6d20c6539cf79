"""What every section of a job file is: keys declared with type, default and a sentence, and no others."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of a job file; an unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)
