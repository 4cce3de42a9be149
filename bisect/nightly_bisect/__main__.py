"""Run the command line as ``python -m nightly_bisect``."""

from nightly_bisect.cli import main

if __name__ == "__main__":
    main()
