"""Remedies: what failed in past sessions and what worked next, found without a model.

calls: calls with their results, shell lines parsed; alignment: a failure and the call that reached its goal; sessions:
the facts of one session; findings: what many sessions support; wording: a lesson in words.
"""
