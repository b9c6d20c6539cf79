"""The HTTP side: publishing, health, metrics, and the door for web sockets; layers above add routes."""
