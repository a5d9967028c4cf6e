"""Speed against the well-known library, measured in one interleaved run. `python -m benchmarks --help`."""
