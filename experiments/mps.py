"""NVIDIA's MPS daemon, with which kernels of several processes run on a GPU at once; without it they take turns."""

import contextlib
import os
import shutil
import subprocess
import sys

CONTROL = "nvidia-cuda-mps-control"
PROBE = "import torch; x = torch.ones(8, device='cuda'); print(int(x.sum()))"


def _says(environment, seconds):
    """Whether a process can compute on the GPU."""
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and done.stdout.strip() == "8"


@contextlib.contextmanager
def daemon(work, is_wanted, seconds=60):
    """Starts the daemon if it is wanted and works. The environment for processes that share the GPU; None: as it is."""
    if not is_wanted or shutil.which(CONTROL) is None:
        if is_wanted:
            print(f"mps: there is no {CONTROL}; trainings take turns on the GPU", flush=True)
        yield None
        return
    folder = work.resolve() / "mps"
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(folder), CUDA_MPS_LOG_DIRECTORY=str(folder))
    try:
        started = subprocess.run([CONTROL, "-d"], env=environment, timeout=20, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        started = False
    works = started and _says(environment, seconds)
    print("mps: trainings share the GPU" if works else "mps: the daemon does not work here; trainings take turns on the GPU", flush=True)
    try:
        yield environment if works else None
    finally:
        if started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([CONTROL], input="quit\n", text=True, env=environment, timeout=20, capture_output=True)
