"""Commands that plan training and count its costs."""
