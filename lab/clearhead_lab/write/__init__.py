"""A Transformer that the learner writes: functions with heads and docstrings, and a judge of each."""
