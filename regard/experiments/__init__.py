"""Experiments over several runs: compare parts, count costs, rank heads."""
