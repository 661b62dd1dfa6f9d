"""Models that read and write outside themselves: machines, memory networks, SNAIL."""
