"""Requests to the management API, who may make them, and the endpoint that issues tokens to service principals."""
