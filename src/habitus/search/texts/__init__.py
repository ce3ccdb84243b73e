"""Text processing for the index: terms, words and embedding vectors."""
