"""What models return: typed values that know their loss against a batch."""
