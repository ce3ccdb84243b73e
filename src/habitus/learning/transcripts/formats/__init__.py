"""Readers of transcripts, one module for each format."""
