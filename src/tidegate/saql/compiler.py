"""From the text of a query to its plan."""
