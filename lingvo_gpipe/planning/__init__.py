"""What a pipeline will take: memory, time, and the best number of everything."""
