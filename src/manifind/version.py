"""The version, in a place that every room may import."""

VERSION = "0.1.0.dev0"
