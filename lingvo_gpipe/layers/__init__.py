"""Layers ready for a pipeline: they know their cost and their output shapes."""
