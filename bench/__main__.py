"""`python -m bench`: the spine's figures."""

from bench.spine import main

main()
