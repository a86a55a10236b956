"""The formats of ground truths: a module for each, with a function that returns a `Protocol`."""
