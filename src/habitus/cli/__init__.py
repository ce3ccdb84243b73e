"""The command line: parses arguments, calls a use case of `app` and renders the result; one module per group."""
