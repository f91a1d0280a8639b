"""The decisions of edged: bytes and commands in, events and effects out. No I/O, no clock, no chance."""
