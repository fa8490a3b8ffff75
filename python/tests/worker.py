"""A rank of a test: says that it is ready, reads orders, a line of JSON each, does the job that is named and replies with what came of it."""

import inspect
import json
import sys
import warnings

import torch
import torch.distributed as dist

import bad_jobs
import chaos
import device_jobs
import fsdp_jobs
import jobs
import local_jobs

warnings.filterwarnings("ignore")


def jobs_of(*modules):
    """The functions of modules, by their names, of which no two are the same."""
    found = {}
    for module in modules:
        for name, job in vars(module).items():
            if inspect.isfunction(job) and job.__module__ == module.__name__ and not name.startswith("_"):
                assert name not in found, f"{name} is in {found[name].__module__} and in {module.__name__}"
                found[name] = job
    return found


JOBS = jobs_of(jobs, bad_jobs, device_jobs, chaos, local_jobs, fsdp_jobs)


def main():
    torch.set_num_threads(1)
    replies, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=replies, flush=True)
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
