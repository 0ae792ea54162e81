"""What a rank process of the tests runs: a function of a test file, whose result it sends back."""

import pickle
import runpy
import traceback

import torch

torch.set_num_threads(1)
(file, name), rank, arguments, results = task  # noqa: F821 - given by run_path
try:
    body = runpy.run_path(file)[name]
    # bytes: a tensor in a queue stays with the process that sent it
    results.put((rank, pickle.dumps(body(rank, *arguments)), None))
except BaseException:
    results.put((rank, None, traceback.format_exc()))
