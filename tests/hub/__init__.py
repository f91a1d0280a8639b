"""The hub: the parts that decide for a cluster, and the cluster as a whole."""
