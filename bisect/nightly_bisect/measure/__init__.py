"""Search where single runs prove little: flaky checks and numbers with noise. Pure, and needs numpy."""
