"""Readers of transcripts, one module per format.

Each has `SOURCE`, `looks_like` for a row of the file, and `read`.
"""
