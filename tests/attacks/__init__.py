"""Attacks as tests: each has a name, a defined answer, and a server that goes on serving afterwards."""
