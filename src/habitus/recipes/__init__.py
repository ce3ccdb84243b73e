"""Recipes, the second stage of a skill: named sequences of tool calls with parameters, checked, run and offered."""
