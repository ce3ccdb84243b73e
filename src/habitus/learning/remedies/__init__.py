"""Remedies: what failed in past sessions and what worked next, without a model.

calls → what was run and what came of it, shell lines taken apart; alignment → a failure and the call that did the same
thing; sessions → the facts of one session; findings → what many sessions hold; wording → a lesson of it.
"""
