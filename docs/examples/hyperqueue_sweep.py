"""Runs a sweep on HyperQueue: hyperqueue_sweep.py KVWEFT FOLDER SHARDS [ARGUMENTS OF kvweft sweep]..

Starts a server and two workers on this machine, submits one task a shard, waits, and merges into FOLDER/merged.jsonl. On a
cluster, start `hq server` and the workers there, and take `Client()` in place of `LocalCluster`. Needs the Python package
`hyperqueue`. The exit code is that of the merge.
"""

import pathlib
import subprocess
import sys

from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig


def main() -> int:
    kvweft, folder, shards, sweep = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    folder.mkdir(parents=True, exist_ok=True)
    files = [str(folder / f"shard-{k}.jsonl") for k in range(1, shards + 1)]
    with LocalCluster() as cluster:
        for _ in range(2):
            cluster.start_worker(WorkerConfig(cores=1))
        client = cluster.client()
        job = Job(max_fails=shards)
        for k, file in enumerate(files, start=1):
            command = [kvweft, "sweep", *sweep, "--shard", f"{k}/{shards}", "--out", file]
            log = str(folder / f"shard-{k}.log")
            job.program(command, stdout=log, stderr=log)
        # A shard that found something unexpected ends with 1: that is a result, and the merge says so.
        client.wait_for_jobs([client.submit(job)], raise_on_error=False)
    merged = str(folder / "merged.jsonl")
    return subprocess.run([kvweft, "merge", *files, "--out", merged], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
