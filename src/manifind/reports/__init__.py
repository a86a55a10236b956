"""What a search looks like: self-contained HTML, for the commands and the service alike."""
