"""Find the first bad nightly of a package with dated builds."""

__version__ = "0.1.0"
