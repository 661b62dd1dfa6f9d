"""Models that read and write outside themselves: memory networks, readers of stories, SNAIL."""
