"""The sandbox: where code that nobody vouched for is mended and runs, as a warm tool call or as a cell."""
