"""Groups that several nodes have, behind the store: consensus, journal and machines brought together."""
