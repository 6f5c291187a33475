#!/usr/bin/env python3
"""The same training step in PyTorch: the peer that run.sh measures Ballast against.

A GPT-2 style decoder (pre-norm, learned positions, GELU tanh, tied head), fp32, fused attention
(scaled_dot_product_attention, causal), fused AdamW, gradient clipping at norm 1. Prints one JSON
object: step times in seconds, peak memory in bytes, what was used.

usage: peer.py LAYERS WIDTH HEADS CONTEXT VOCAB BATCH STEPS [THREADS] [eager|compile]
"""
import json
import os
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

layers, width, heads, context, vocab, batch, steps = map(int, sys.argv[1:8])
threads = int(sys.argv[8]) if len(sys.argv) > 8 else 2
mode = sys.argv[9] if len(sys.argv) > 9 else "eager"
torch.set_num_threads(threads)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (a.view(b, t, heads, c // heads).transpose(1, 2) for a in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        z = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(z.view(-1, vocab), targets.view(-1))


model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                              fused=True)
step_fn = torch.compile(model) if mode == "compile" else model
times = []
for _ in range(steps):
    tokens = torch.randint(vocab, (batch, context + 1))
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = step_fn(tokens[:, :-1], tokens[:, 1:].contiguous())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss.item()
    times.append(time.perf_counter() - start)

print(json.dumps({
    "seconds": times,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "what": f"torch {torch.__version__} {mode}, {threads} threads, "
            f"{'MKL' if torch.backends.mkl.is_available() else 'other BLAS'}, "
            f"preload {os.environ.get('LD_PRELOAD', 'none')}",
}))
