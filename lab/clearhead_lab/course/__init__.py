"""The course "The Transformer, seen through": pages whose code runs, whose numbers are checked, and the site of them.

`python -m clearhead_lab.course build` trains the small models, runs every page, writes the figures and builds the site.
"""
