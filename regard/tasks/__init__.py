"""Tasks: from a batch to a loss, metrics and predictions."""
