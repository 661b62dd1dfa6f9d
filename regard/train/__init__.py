"""The training loop; a resumed training is bit-identical to one that was never interrupted."""
