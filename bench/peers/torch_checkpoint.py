"""Reads the weights of a checkpoint by PyTorch's own reader and compares them with what was exported.

Usage: torch_checkpoint.py CHECKPOINT EXPORTED
  CHECKPOINT  gpt-bytes/1/step-00000060
  EXPORTED    what `meshwright checkpoint export CHECKPOINT model.safetensors` wrote

Needs torch and safetensors. Prints one line of JSON; exit code 1: a tensor is missing or differs.
"""
import json
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader


def differs(name, read, exported):
    """Why the tensor is not what was exported; an export joins the heads of attention to one axis."""
    if name not in exported:
        return f"{name} was not exported"
    other = exported[name]
    same = read.numel() == other.numel() and torch.equal(read.reshape(other.shape), other)
    return "" if same else f"{name} differs"


def main():
    reader = HuggingFaceStorageReader(sys.argv[1] + "/sharded")
    sizes = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(of.size, dtype=of.properties.dtype) for name, of in sizes.items()}
    dcp.load(state, storage_reader=reader, no_dist=True)
    exported = load_file(sys.argv[2])
    wrong = [why for name, tensor in state.items() if (why := differs(name, tensor, exported))]
    wrong += [f"{name} was not read" for name in exported if name not in state]
    print(json.dumps({"tensors": len(state), "wrong": wrong, "torch": torch.__version__}))
    return 1 if wrong or not state else 0


if __name__ == "__main__":
    sys.exit(main())
