"""`python3 -m determined.launch.torch_distributed [options --] python3 train.py …`: a process for each slot."""

import sys

from stoker.compat.determined.launching import run_on_slots

if __name__ == "__main__":
    run_on_slots(sys.argv[1:], variables={"USE_TORCH_DISTRIBUTED": "True"})
