"""Times in PyTorch what a list of works asks for: JSON from standard input, JSON to standard output.

Each work is answered with {"graph_ns", "launched_ns"}, or null where memory is short. Times are taken as kvweft takes its own: calls in a
CUDA graph of 20, and 20 calls launched one by one, each the median of 7 between two events, divided by 20.
"""

import json
import sys

try:
    import torch
except ImportError:
    print(json.dumps({"missing": "python3 has no torch"}))
    sys.exit(0)

CALLS, REPEATS = 20, 7


def median_ns(group):
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        group()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e6 / CALLS)
    return round(sorted(times)[REPEATS // 2])


def launched_ns(call):
    def group():
        for i in range(CALLS):
            call(i)

    group()
    torch.cuda.synchronize()
    return median_ns(group)


def graph_ns(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(CALLS):
            call(i)
    graph.replay()
    torch.cuda.synchronize()
    return median_ns(graph.replay)


def top_k(work):
    """The k largest, in any order: torch.topk with sorted=False. Half of the logits are zero, as after a relu."""
    logits = torch.randint(-50000, 50001, (work["rows"], work["len"]), device="cuda").clamp_min(0).float() / 64
    return lambda i: torch.topk(logits, work["k"], dim=-1, sorted=False)


def sparse_attention(work):
    """Rows by index from one pool, whose place is known; two products and a softmax between them."""
    rows, k, tokens = work["rows"], work["k"], 256_000
    slots = torch.randint(0, tokens, (rows, k), device="cuda")
    q = torch.randn(rows, work["heads"], 576, device="cuda", dtype=torch.bfloat16)
    if work["fp8"]:
        pool = torch.randint(0, 0x38, (tokens, 656), device="cuda", dtype=torch.uint8)
    else:
        pool = torch.randn(tokens, 576, device="cuda", dtype=torch.bfloat16)

    def gather():
        picked = pool[slots]
        if not work["fp8"]:
            return picked
        codes = picked[..., :512].view(torch.float8_e4m3fn).to(torch.bfloat16).view(rows, k, 4, 128)
        scales = picked[..., 512:528].contiguous().view(torch.float32).to(torch.bfloat16).unsqueeze(-1)
        rope = picked[..., 528:].contiguous().view(torch.bfloat16)
        return torch.cat([(codes * scales).view(rows, k, 512), rope], -1)

    def call(i):
        kv = gather()
        scores = torch.matmul(q, kv.transpose(1, 2)) * 0.01
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(torch.bfloat16)
        return torch.matmul(weights, kv[..., :512])

    return call


def index_logits(work):
    """A product with contiguous bf16 keys, relu, weights, sum. Fp8 keys and their scales are decoded first."""
    rows, length, heads = work["rows"], work["len"], work["heads"]
    fp8, sets = work["key_bytes"] == 1, max(1, (320 << 20) // (rows * length * 128 * work["key_bytes"]))
    dtype = torch.uint8 if fp8 else torch.bfloat16
    sets = min(sets, CALLS)
    keys = [torch.randint(0, 0x38, (rows, length, 128), device="cuda", dtype=torch.uint8).to(dtype) for _ in range(sets)]
    scales = torch.rand(rows, length, device="cuda")
    q = torch.randn(rows, heads, 128, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(rows, 1, heads, device="cuda")

    def call(i):
        own = keys[i % sets]
        own = own.view(torch.float8_e4m3fn).to(torch.bfloat16) if fp8 else own
        logits = (torch.relu(torch.matmul(own, q.transpose(1, 2))).float() * weights).sum(-1)
        return logits * scales if fp8 else logits

    return call


KINDS = {"top_k": top_k, "sparse_attention": sparse_attention, "index_logits": index_logits}


def main():
    request = json.load(sys.stdin)
    if not torch.cuda.is_available() or request["device"] >= torch.cuda.device_count():
        print(json.dumps({"missing": "torch sees no such GPU"}))
        return
    torch.cuda.set_device(request["device"])
    torch.manual_seed(0)
    times = []
    for work in request["works"]:
        try:
            call = KINDS[work["of"]](work)
            times.append({"graph_ns": graph_ns(call), "launched_ns": launched_ns(call)})
        except torch.cuda.OutOfMemoryError:
            times.append(None)
        call = None
        torch.cuda.empty_cache()
    print(json.dumps({"version": torch.__version__, "times": times}))


main()
