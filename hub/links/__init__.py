"""Links between the nodes of a hub: consensus and calls (control), interest and messages (routes)."""
