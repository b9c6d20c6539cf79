"""The AMQP side: one client's connection, and the behaviour behind each kind of link."""
