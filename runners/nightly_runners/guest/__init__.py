"""Files that run inside the environment under test: standard library only, Python 3.8 syntax."""
