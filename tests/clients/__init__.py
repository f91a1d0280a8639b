"""Published clients, unmodified, against the daemon."""
