"""What an index is: its photos, how they became it, its files, and what a state of it holds."""
