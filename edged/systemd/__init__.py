"""What systemd is told, and nothing at all where there is no systemd."""
