"""What can go wrong between a client and a hub; each message is for a person, and none holds a key or a token."""


class ClientError(Exception):
    """A hub cannot be reached, or refuses."""


class ConnectionLostError(ClientError):
    """The connection broke, or the hub did not answer; another attempt may succeed."""


class PublishError(ClientError):
    """The hub refused events; none of their batch is stored."""
