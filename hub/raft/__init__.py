"""The consensus core: pure, standard library only."""
