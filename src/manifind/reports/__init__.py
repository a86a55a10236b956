"""What was found, for commands and service alike: pages and pictures, JSON and tables, reports that can be repeated."""
