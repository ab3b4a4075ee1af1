"""How values become behaviour."""
