"""The answer and the texts made of it. Pure: no files, clock, environment, processes, network."""
