"""Questions to the engine: whether a query compiles, what it returns for samples, and what happened in a job's log.

The portal and the management API ask them. It runs in a process of its own (`python -m tidegate.service.workbench`):
the hub loads no engine, and no question can harm it.
"""
