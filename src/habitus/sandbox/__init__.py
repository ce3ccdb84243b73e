"""Where model-written code is mended, isolated and run."""
