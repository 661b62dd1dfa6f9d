"""Images: files and folders of them, and the batches of each task."""
