"""What differs from chip to chip: multipliers, clocks, and models of vendor cells."""
