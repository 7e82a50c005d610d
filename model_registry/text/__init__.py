"""Text as training data: files, vocabularies, packing."""
