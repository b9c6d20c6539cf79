"""Queries compiled against everything that the engine has."""

from functools import partial

import tidegate.sql
from tidegate.engine import CATALOG

compile_query = partial(tidegate.sql.compile_query, catalog=CATALOG)
