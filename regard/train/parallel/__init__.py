"""Training in several processes, on torch.distributed."""
