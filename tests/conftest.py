"""What must be so before any test, or anything a test imports, is loaded."""

import os

# gcsfs reads this one when it is imported, and any test of any folder may be the first to do so.
# With its default it asks Google by gRPC about each bucket, and waits a minute for the answer.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
