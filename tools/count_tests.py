"""Counts a meson test log: prints "PASSED FAILED SKIPPED". A log without a test is a failure."""

import json
import sys

counts = {"passed": 0, "failed": 0, "skipped": 0}
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        result = json.loads(line)["result"]
        if result in ("OK", "EXPECTEDFAIL"):
            counts["passed"] += 1
        elif result == "SKIP":
            counts["skipped"] += 1
        else:
            counts["failed"] += 1
if not any(counts.values()):
    counts["failed"] = 1
print(counts["passed"], counts["failed"], counts["skipped"])
