"""The command line: parse, call a use case of `app`, render what comes back; one module per group of commands."""

import sys

if sys.platform == "win32":  # before anything is imported that Windows does not have
    sys.exit("habitus: Windows is not supported. Install Habitus inside WSL 2, where everything works as on Linux.")
