"""Sharding: which rows the keyed side keeps together, so that it can run on several executors at once.

`keys` follows the keys of a query from operator to operator and decides by which of them each operator is sharded,
`codes` turns the values of keys into the numbers of shards, and `payloads` divides what a task sends among them.
"""
