"""What the service answers to: a module for each subject, whose function `add` gives an application its routes."""
