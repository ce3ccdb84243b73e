"""A database shared by several hosts: reachability, copies, the offline snapshot, and approvals from other hosts."""
