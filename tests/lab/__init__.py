"""The fault laboratory: disks that crash, fail and rot: `python -m tests.lab crash --states 1000000`."""
