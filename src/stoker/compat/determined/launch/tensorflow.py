"""`python3 -m determined.launch.tensorflow [--] python3 train.py …`: TF_CONFIG is set for every process already."""

import sys

from stoker.compat.determined.launching import become, split

if __name__ == "__main__":
    become(split(sys.argv[1:])[1])
