"""The configuration: its language, its typed form, and the command-line flags on top of it."""
