"""The links between the nodes of a hub."""
