"""One bisection: its ends, its trials, the loop over them, and what is concluded."""
