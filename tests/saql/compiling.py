"""Queries compiled against everything that the engine has."""

from functools import partial

import tidegate.saql
from tidegate.engine import CATALOG

compile_query = partial(tidegate.saql.compile_query, catalog=CATALOG)
