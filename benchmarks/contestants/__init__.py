"""What is raced: each contestant, in a process of its own."""
