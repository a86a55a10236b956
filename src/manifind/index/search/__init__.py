"""How an index answers: a query is ranked, looked at by geometry, taught by what that verified, and explained."""
