"""Translation: its tasks, input generators and registered params."""
