"""The types of columns, in the words of the query language."""

from __future__ import annotations

from typing import Literal

ColumnType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
