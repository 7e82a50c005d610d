"""Registered models, by kind of data. A model's name is its module's path and its class's name."""
