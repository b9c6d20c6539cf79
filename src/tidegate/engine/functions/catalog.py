"""All functions of the language: importing the modules that declare them is what fills the tables."""

from __future__ import annotations

from tidegate.engine.functions import dates, geography, logic, numbers, records, text
from tidegate.engine.functions.declarations import SCALARS, TABLES
from tidegate.extensions import load_group

__all__ = ["MODULES", "SCALARS", "TABLES"]

MODULES = (text, dates, numbers, logic, records, geography)
"""The modules with declarations, beside those that entry points name."""

load_group("tidegate.functions")
