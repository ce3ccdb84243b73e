"""Scripts that run inside the sandbox: standard library only, started by path with `-I`."""
