"""Stand-ins for the real thing, small: generated wheels and a loopback index of the real form.

The demo and the tests use them; a true run does not.
"""
