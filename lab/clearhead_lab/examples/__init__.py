"""The worked examples of the source documents, computed by the engine's own parts."""
