"""Declarative memory: facts, rules and lessons, with one way in (`Cortex.encode`) and three pages that people
can edit.
"""
