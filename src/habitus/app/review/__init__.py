"""Pending reviews: the inbox, the effect of approving, notifications and reminders."""
