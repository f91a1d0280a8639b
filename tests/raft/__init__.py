"""Tests of the consensus core, by paragraph of the Raft paper and of the thesis."""
