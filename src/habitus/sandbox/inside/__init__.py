"""Scripts that run inside the sandbox: standard library only, started by path with `-I`, never imported by the host."""
