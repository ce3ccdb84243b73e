"""Language models behind one narrow interface that is independent of their providers."""
