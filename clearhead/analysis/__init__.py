"""Questions to a network, answered from its traces."""
