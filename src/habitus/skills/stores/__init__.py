"""Where the skills of one layer are kept: in a directory, in memory, in SQL; one contract for all."""
