"""The index of dated wheels: what exists, where it lies, and how to get it."""
