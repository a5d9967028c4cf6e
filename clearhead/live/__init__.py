"""The live page of a run: its folder's records in a browser, during training and afterwards. Imports no torch."""
