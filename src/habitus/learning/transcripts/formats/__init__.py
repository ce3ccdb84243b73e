"""Readers of transcripts, one module per format.

Each has `SOURCE`, `recognizes_row` for a row of the file, and `read`.
"""
