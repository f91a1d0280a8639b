"""JetStream in a cluster: several real ones in one loop, and a fake in the place of replication and links."""
