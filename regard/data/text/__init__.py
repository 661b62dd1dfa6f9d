"""Text data: files, tokenisers, cached corpora, and the examples of each task."""
