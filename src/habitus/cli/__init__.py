"""The command line: one module per group of commands, heavy imports only inside the command that needs them."""
