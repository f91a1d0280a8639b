"""Streams by domain between edge and hub, and leaf-node links."""
