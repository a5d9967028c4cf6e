"""What training costs, on paper: the memory of a GPU, what it sends, how long it takes; nothing is run."""
