"""Which skills a request gets: by rules, by search, and as lines of the menu; with evals for it."""
