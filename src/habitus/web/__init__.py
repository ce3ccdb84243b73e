"""The web page and REST: they parse requests, call `app` and render the result."""
