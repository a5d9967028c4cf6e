"""The names of the files in a run's folder. Imports no torch, so that a page of the run starts at once."""

METRICS = "metrics.jsonl"
RECIPE = "recipe.json"
"""The file of a run, and of each of its checkpoints, that says how it is trained."""
BEST = "best.json"
"""The file that names the best checkpoint."""
LOCK, OWNER = ".lock", ".owner"
"""The file that is locked, and the file that names the process that writes to the folder."""
