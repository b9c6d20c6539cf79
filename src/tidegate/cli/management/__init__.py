"""The command line's way to the management API that Azure's tools use: where it is, the credentials, the requests."""
