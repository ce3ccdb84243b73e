"""Remedies: what failed in past sessions and what worked next, without a model.

commands → what a shell line runs; troubles → what an error is about; alignment → a failure and the call that did the
same thing; sessions → the facts of one session; findings → what many sessions hold; wording → a lesson of it.
"""
