"""How an index is cared for: what it says of itself, what is checked and repaired, and what its own pairs teach it."""
