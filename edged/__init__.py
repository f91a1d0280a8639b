"""edged: durable messaging for the edge, compatible with NATS."""

__version__ = "0.1.0"
