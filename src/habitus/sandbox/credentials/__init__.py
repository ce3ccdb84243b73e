"""Credentials of skills: secret values and hosts that only the granted skill's command line can use."""
