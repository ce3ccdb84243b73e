"""The sandbox that runs untrusted code, either as a warm tool call or as a scratchpad cell."""
