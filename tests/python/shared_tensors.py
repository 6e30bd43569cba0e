"""A program for test_allocator.py: tensors go to another process and come back changed. Prints as JSON what both
found.

    shared_tensors.py default | expandable | neap      (expandable: by PYTORCH_CUDA_ALLOC_CONF)

No kernel runs on the simulator, but copies move bytes.
"""

import gc
import json
import sys

import torch
import torch.multiprocessing
from neap import _values

if sys.argv[1] == "neap":
    import neap

    neap.install_allocator()  # in both processes: the child imports this file, too

SIZES = (1000, 3_000_000, 300_000_000)  # within a page, of several pages, of more than one message
BOUND = 120


def answer(tensors, answers):
    """The child: receives tensors, reports their contents, and writes into each."""
    for _ in SIZES:
        tensor = tensors.get(timeout=BOUND)
        seen = tensor.cpu()
        tensor[:4].copy_(torch.tensor([4, 3, 2, 1], dtype=torch.uint8))
        torch.cuda.synchronize()
        answers.put([len(seen), seen[:4].tolist(), seen[-4:].tolist()])
        del tensor
        gc.collect()
    view = tensors.get(timeout=BOUND)
    answers.put([view.cpu().tolist(), view.storage_offset(), torch.cuda.memory_allocated()])
    del view
    unknown = tensors.get(timeout=BOUND)
    answers.put([_values.known(unknown), bool(unknown.min() > 0)])
    del unknown
    tensors.get(timeout=BOUND)


def main():
    context = torch.multiprocessing.get_context("spawn")
    tensors = context.Queue()
    answers = context.Queue()
    child = context.Process(target=answer, args=(tensors, answers))
    child.start()
    found = {"backend": torch.cuda.get_allocator_backend(), "sizes": []}
    before = torch.zeros(100, dtype=torch.uint8, device="cuda")  # so that the next tensor begins inside a page
    for size in SIZES:
        pattern = torch.arange(256, dtype=torch.uint8).repeat(size // 256 + 1)[:size]
        sent = torch.empty(size, dtype=torch.uint8, device="cuda")
        sent.copy_(pattern)
        tensors.put(sent)
        seen = answers.get(timeout=BOUND)
        found["sizes"].append([seen, sent[:6].cpu().tolist()])
        del sent
    whole = torch.empty(64, dtype=torch.uint8, device="cuda")
    whole.copy_(torch.arange(64, dtype=torch.uint8))
    tensors.put(whole[10:14])
    found["view"] = answers.get(timeout=BOUND)
    unknown = torch.zeros(64, device="cuda")
    if _values.is_on():
        torch.ops.neap_values.mark_unknown(unknown, False)
    tensors.put(unknown)
    found["unknown"] = [*answers.get(timeout=BOUND), _values.is_on()]
    del unknown
    tensors.put(None)
    child.join(BOUND)
    found["child"] = child.exitcode
    del whole, before
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    found["left"] = torch.cuda.memory_allocated()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
