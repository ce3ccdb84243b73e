"""Previews of files: what a file is and how it begins, in few words, however large or odd it is."""
