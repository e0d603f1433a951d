"""`python3 -m determined.launch.horovod … -- python3 train.py …`: one slot only, for there is no Horovod here."""

import sys

from stoker.compat.determined.cluster import get_cluster_info
from stoker.compat.determined.launching import become, split

if __name__ == "__main__":
    info = get_cluster_info()
    if info is not None and sum(info.container_slot_counts) > 1:
        raise SystemExit(
            "error: Horovod on several slots is not supported. Use determined.launch.torch_distributed, or 1 slot."
        )
    become(split(sys.argv[1:])[1])
