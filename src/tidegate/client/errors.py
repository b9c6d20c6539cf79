"""Errors between a client and a hub. Messages are for people, and never hold a key or a token."""


class ClientError(Exception):
    """A hub cannot be reached, or refuses a request."""


class ConnectionLostError(ClientError):
    """The connection broke, or the hub did not answer; another attempt may succeed."""


class PublishError(ClientError):
    """The hub refused events; none of their batch is stored."""
