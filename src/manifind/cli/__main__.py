"""``python -m manifind.cli``."""

from manifind.cli import main

main()
