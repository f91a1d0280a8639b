"""The mark of tests that mount filesystems.

They need root. As anybody else they are skipped, which CI does not accept; as root they fail when a program
is missing, for `make test` installs what they need.
"""

import os

import pytest

needs_filesystems = pytest.mark.skipif(os.geteuid() != 0, reason="mounting filesystems needs root")
