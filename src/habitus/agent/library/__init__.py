"""The library as one conversation sees it: one snapshot a turn, and the files of its skills."""
