"""The hub: the same daemon with Raft in front of its journal."""
