"""Models behind one narrow seam: what is asked, what comes back, and nothing about who provides it."""
