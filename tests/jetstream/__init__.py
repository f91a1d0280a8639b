"""JetStream: what our parts decide, held against what a real nats-server answers on the wire."""
