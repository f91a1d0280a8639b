"""Consumers at run time: what hands messages out, and hears what became of them."""
