"""Words, sequences and tasks."""
