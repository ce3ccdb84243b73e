"""Tasks: a request, the files it starts from, and the checks that judge the result."""
