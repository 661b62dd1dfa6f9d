"""Trained models in the forms of other programs, each checked there against what it says here."""
