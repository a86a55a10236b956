"""How an index is made and brought up to date: photos are listed, extracted, compared and stored."""
