"""Links between servers and leaf nodes, as nats-server speaks on them."""
