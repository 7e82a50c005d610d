"""Language models: their tasks, input generators and registered params."""
