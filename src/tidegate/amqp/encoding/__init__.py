"""AMQP's type system (part 1): values, their encodings, composite types, and the errors of this package."""
