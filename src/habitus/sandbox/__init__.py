"""The sandbox: where code that nobody vouched for runs, as a warm tool call or as a cell of a scratchpad."""
