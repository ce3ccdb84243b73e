"""The web page and REST: they parse, call `app` and render what comes back."""
