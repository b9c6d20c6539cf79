"""Outputs that write rows to tables of a database, in one transaction with their mark."""
