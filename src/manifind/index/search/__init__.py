"""How an index answers: retrieval, verification, query expansion, confidence, and the explanation of a result."""
