"""Real clusters under the faults of Jepsen's analysis of NATS, and whether they keep what they acknowledged.

A scenario starts nodes in network namespaces of their own, lets clients publish and acknowledge, breaks
something, repairs it, and reads everything through every node. `python -m tests.jepsen --help`.
"""
