"""The command line: parse, call a use case of `app`, render what comes back; one module per group of commands."""
