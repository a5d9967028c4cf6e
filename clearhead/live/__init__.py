"""The live page of a run: what its folder records, in a browser, while it trains and afterwards. Imports no torch."""
