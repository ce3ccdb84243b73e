"""Improving a skill: tasks split once, candidates of a few edits, and a ledger of everything that was tried."""
