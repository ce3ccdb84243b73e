"""Improving a skill: read tasks, candidates, rollouts, gate, exam and report, in this order; `run` is the loop."""
