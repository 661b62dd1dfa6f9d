"""Images: captions, glimpses, drawings."""
