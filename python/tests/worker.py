"""A rank of a test: reads orders, a line of JSON each, does the job that is named and replies with what came of it."""

import json
import sys
import warnings

import torch
import torch.distributed as dist

import bad_jobs
import chaos
import fsdp_jobs
import jobs
import local_jobs

warnings.filterwarnings("ignore")
JOBS = {**vars(jobs), **vars(bad_jobs), **vars(chaos), **vars(local_jobs), **vars(fsdp_jobs)}


def main():
    torch.set_num_threads(1)
    replies, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        order = json.loads(line)
        dist.init_process_group("gloo", init_method="file://" + order["file"], rank=order["rank"], world_size=order["world"])
        try:
            reply = JOBS[order["job"]](order["rank"], order["world"], **order["arguments"])
        except Exception as error:
            reply = {"error": str(error), "type": type(error).__name__, "code": getattr(error, "code", None)}
        try:
            dist.destroy_process_group()
        except Exception:
            pass
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
