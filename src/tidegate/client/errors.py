"""Errors between a client and a hub. Messages are for people, and never hold a key or a token."""


class ClientError(Exception):
    """A hub cannot be reached, or refuses a request."""


class BusyError(ClientError):
    """The hub refuses for now: it is throttled, all places of readers are taken, or another reader owns a partition."""


class ConnectionLostError(ClientError):
    """The connection broke, or the hub did not answer; another attempt may succeed."""


class PublishError(ClientError):
    """The hub refused events; none of their batch is stored."""
