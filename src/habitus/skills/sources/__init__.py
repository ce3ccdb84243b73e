"""Skills from elsewhere: discovery, fetching, import with a verdict, lockfiles and trust."""
