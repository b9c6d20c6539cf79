"""What all connections and requests of one server share: settings, metrics, wake-ups, chunks and throttles.

Nothing here knows a protocol or opens a socket; `ServerContext` is what the protocol sides are given.
"""
