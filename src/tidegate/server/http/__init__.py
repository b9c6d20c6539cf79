"""The HTTP side: publishing, the management API, health, metrics, and the door for web sockets."""
