"""Recipes, run folders, and what a run takes from other runs and checkpoints."""
