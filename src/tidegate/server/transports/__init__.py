"""How AMQP bytes reach the hub: TCP, TLS and WebSocket, behind the two protocols of `transport`."""
