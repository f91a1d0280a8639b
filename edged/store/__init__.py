"""Everything that touches files. No trio here."""
