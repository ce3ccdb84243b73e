"""Is this text or code hostile? One engine for skills from outside and for what wants to enter memory."""
