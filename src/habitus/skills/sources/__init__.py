"""Skills from elsewhere: found, fetched, taken in with a verdict, locked to a version, and trusted by a person."""
