"""What the portal asks the engine: to check a query, test it on samples, and answer questions about a job's log.

It runs in a process of its own (`python -m tidegate.portal.workbench`): the hub loads no engine, and no question can
harm it.
"""
