"""Tests that need more than PyPI, Debian's packages and npm; `make test-extra` runs them."""
