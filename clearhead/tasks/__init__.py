"""What a network is trained for: examples, loss and measures, one file a task."""
