"""Text: read it (files), encode it (tokeniser), store it (corpus), and its examples."""
