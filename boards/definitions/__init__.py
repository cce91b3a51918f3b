"""One file per board."""
