"""The nouns: what users write, what runs say, what servers answer."""
