"""Train: a task over batches, to the last bit the same whether interrupted or not."""
