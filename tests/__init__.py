"""Tests of edged: the folders mirror the packages, `servers` starts real programs."""
