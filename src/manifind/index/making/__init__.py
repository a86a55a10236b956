"""How an index is made and brought up to date: photos are gathered, described, compared and written down."""
