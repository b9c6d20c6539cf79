"""Requests to the management API, their answers, the table of operations, and the roles, apart from HTTP."""
