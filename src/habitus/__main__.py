"""`python -m habitus` is `habitus`."""

from habitus.cli.start import run

if __name__ == "__main__":
    run()
