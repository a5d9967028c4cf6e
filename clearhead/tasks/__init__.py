"""What a network is trained for: one file a task, which `registry` names."""
