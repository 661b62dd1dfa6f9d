"""Sequence to sequence models."""
