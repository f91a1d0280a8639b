"""The same wire scripts against nats-server and edged, answers compared; see README.md in this folder."""
