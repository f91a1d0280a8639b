"""Random input for everything that reads foreign bytes: `python -m tests.fuzz --inputs 1000000`."""
