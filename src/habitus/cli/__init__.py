"""The command line: parses arguments, calls a use case of `app` and renders the result; one module per group."""

import sys

# Checked before any other import, because the next modules need POSIX-only parts of the standard library.
if sys.platform == "win32":
    sys.exit("habitus: Windows is not supported. Install Habitus inside WSL 2, where everything works as on Linux.")
