"""The explorer: a page that shows, explains and edits every value of a forward pass."""
