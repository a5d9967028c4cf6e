"""Exercises that look inside: small models, tasks, and judges that read the values of the model."""
