"""Benchmarks side by side: the same load from the same generator, on edged and nats-server in one run."""
