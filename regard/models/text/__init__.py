"""Encoders, classifiers, taggers and readers of text."""
