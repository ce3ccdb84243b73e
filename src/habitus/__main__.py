"""`python -m habitus` is `habitus`."""

from habitus.cli.main import run

if __name__ == "__main__":
    run()
