"""Web pages, one module each, rendered on the server; htmx swaps the parts that change."""
