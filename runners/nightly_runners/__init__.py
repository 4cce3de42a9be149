"""Where a check runs. Knows nothing of bisecting; `contract` is what callers see."""
