#!/usr/bin/env python3
"""Writes the golden files of tests/unit/golden_test.c with PyTorch in float64.

    python3 tests/golden/make_golden.py [FOLDER]

Needs PyTorch (any recent version). The files are committed, so that the tests need no Python.
Each file holds, for one model: weight.<name> (bfloat16, exact), tokens and targets of ten batches
(float32, exact; target -1 = masked), and of the first batch logits (float64), loss (float64) and
gradient.<name> (float32). gpt2 and olmo2 also hold, for ten steps of SGD and of AdamW with
eps = 1e-3 and 1e-8, <run>.losses (float64) and <run>.<name>: every third final weight (float32).
The options of the models and of the optimizers are repeated in golden_test.c.
"""

import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

STEPS = 10
STRIDE = 3
SGD_LR = 0.1
ADAMW_LR, BETAS, DECAY = 0.01, (0.9, 0.95), 0.1

BASE = dict(layers=2, width=32, heads=4, kv_heads=4, head_dim=8, mlp_width=64, context=16, vocab=67,
            norm="layernorm", placement="pre", position="learned", mlp="gelu", qk_norm="off",
            tied=True, bias=True, embedding_norm=False, embedding_scale=1.0, logit_softcap=0.0,
            attention_softcap=0.0, norm_eps=1e-5, rope_theta=10000.0)
SMALL = dict(BASE, layers=1, width=16, heads=4, kv_heads=2, head_dim=6, mlp_width=20, context=8,
             vocab=19)
MODELS = {
    "gpt2": BASE,
    "olmo2": dict(BASE, kv_heads=2, mlp_width=48, norm="rmsnorm", placement="reordered",
                  position="rope", mlp="swiglu", qk_norm="full", tied=False, bias=False,
                  norm_eps=1e-6, rope_theta=500000.0),
    "peri": dict(SMALL, placement="peri", qk_norm="head", embedding_norm=True, embedding_scale=3.0,
                 logit_softcap=2.0, attention_softcap=1.5, mlp="swiglu", position="rope",
                 rope_theta=100.0),
    "post": dict(SMALL, placement="post", norm="rmsnorm", qk_norm="head", tied=False, bias=True,
                 embedding_scale=0.5, attention_softcap=2.0),
    "reordered": dict(SMALL, placement="reordered", qk_norm="full", layers=2, bias=False,
                      tied=False, logit_softcap=3.0, embedding_norm=True),
}


def shapes(m):
    """Name -> shape, in the order of the trainer's parameter table."""
    c, d, f = m["width"], m["head_dim"], m["mlp_width"]
    q, k = m["heads"] * d, m["kv_heads"] * d
    out = {"embed.weight": (m["vocab"], c)}

    def norm(name, width, bias=True):
        out[name + ".weight"] = (width,)
        if bias and m["bias"] and m["norm"] == "layernorm":
            out[name + ".bias"] = (width,)

    def linear(names, sizes, fan_in):
        for name, size in zip(names, sizes):
            out[name + ".weight"] = (size, fan_in)
        for name, size in zip(names, sizes):
            if m["bias"]:
                out[name + ".bias"] = (size,)

    if m["position"] == "learned":
        out["position.weight"] = (m["context"], c)
    if m["embedding_norm"]:
        norm("embed_norm", c)
    for i in range(m["layers"]):
        p = f"layers.{i}."
        norm(p + "norm1", c)
        linear([p + "attn.q", p + "attn.k", p + "attn.v"], [q, k, k], c)
        if m["qk_norm"] != "off":
            norm(p + "attn.q_norm", q if m["qk_norm"] == "full" else d, bias=False)
            norm(p + "attn.k_norm", k if m["qk_norm"] == "full" else d, bias=False)
        linear([p + "attn.o"], [c], q)
        if m["placement"] == "peri":
            norm(p + "post_norm1", c)
        norm(p + "norm2", c)
        if m["mlp"] == "swiglu":
            linear([p + "mlp.gate", p + "mlp.up"], [f, f], c)
        else:
            linear([p + "mlp.up"], [f], c)
        linear([p + "mlp.down"], [c], f)
        if m["placement"] == "peri":
            norm(p + "post_norm2", c)
    if m["placement"] != "post":
        norm("final_norm", c)
    if not m["tied"]:
        out["head.weight"] = (m["vocab"], c)
    return out


def draw_weights(m, generator):
    weights = {}
    for name, shape in shapes(m).items():
        x = torch.randn(shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            x = 1 + 0.2 * x
        elif len(shape) == 1:
            x = 0.1 * x
        elif name in ("embed.weight", "position.weight", "head.weight"):
            x = 0.3 * x
        else:
            x = x / math.sqrt(shape[1])
        weights[name] = x.to(torch.bfloat16).to(torch.float64)
    return weights


def logits_of(m, w, tokens):
    b, t = tokens.shape
    c, d, h, kv = m["width"], m["head_dim"], m["heads"], m["kv_heads"]

    def norm(name, x):
        if m["norm"] == "layernorm":
            x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + m["norm_eps"])
        y = x * w[name + ".weight"]
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def rope(x):  # (b, t, heads, d), pairs (i, i + d/2)
        angle = torch.arange(t)[:, None] * m["rope_theta"] ** (-torch.arange(0, d, 2) / d)
        cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
        one, two = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)

    def cap(x, limit):
        return limit * torch.tanh(x / limit) if limit > 0 else x

    def attention(p, x):
        q, k, v = (linear(p + "attn." + n, x) for n in "qkv")
        if m["qk_norm"] == "full":
            q, k = norm(p + "attn.q_norm", q), norm(p + "attn.k_norm", k)
        q, k, v = q.view(b, t, h, d), k.view(b, t, kv, d), v.view(b, t, kv, d)
        if m["qk_norm"] == "head":
            q, k = norm(p + "attn.q_norm", q), norm(p + "attn.k_norm", k)
        if m["position"] == "rope":
            q, k = rope(q), rope(k)
        k, v = (x.repeat_interleave(h // kv, 2) for x in (k, v))
        s = cap(torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(d), m["attention_softcap"])
        s = s.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
        return linear(p + "attn.o", torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v).reshape(b, t, h * d))

    def mlp(p, x):
        if m["mlp"] == "swiglu":
            return linear(p + "mlp.down", F.silu(linear(p + "mlp.gate", x)) * linear(p + "mlp.up", x))
        return linear(p + "mlp.down", F.gelu(linear(p + "mlp.up", x), approximate="tanh"))

    def branch(x, f, name, post):
        if m["placement"] == "pre":
            return x + f(norm(name, x))
        if m["placement"] == "post":
            return norm(name, x + f(x))
        if m["placement"] == "reordered":
            return x + norm(name, f(x))
        return x + norm(post, f(norm(name, x)))

    x = m["embedding_scale"] * w["embed.weight"][tokens]
    if m["position"] == "learned":
        x = x + w["position.weight"][:t]
    if m["embedding_norm"]:
        x = norm("embed_norm", x)
    for i in range(m["layers"]):
        p = f"layers.{i}."
        x = branch(x, lambda y: attention(p, y), p + "norm1", p + "post_norm1")
        x = branch(x, lambda y: mlp(p, y), p + "norm2", p + "post_norm2")
    if m["placement"] != "post":
        x = norm("final_norm", x)
    return cap(F.linear(x, w["embed.weight" if m["tied"] else "head.weight"]), m["logit_softcap"])


def loss_of(m, w, tokens, targets):
    logits = logits_of(m, w, tokens)
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def optimize(m, weights, tokens, targets, make):
    w = {k: v.clone().requires_grad_() for k, v in weights.items()}
    optimizer = make(list(w.values()))
    losses = []
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(m, w, tokens[i], targets[i])[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, w


TYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16"}


def write(path, tensors):
    header, blobs, at = {}, [], 0
    for name, x in tensors.items():
        x = x.detach().contiguous()
        blob = x.view(torch.uint8).numpy().tobytes() if x.dim() else x[None].view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": TYPES[x.dtype], "shape": list(x.shape) or [1],
                        "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for seed, (name, m) in enumerate(MODELS.items()):
        generator = torch.Generator().manual_seed(1234 + seed)
        weights = draw_weights(m, generator)
        shape = (STEPS, 2, m["context"])
        tokens = torch.randint(0, m["vocab"], shape, generator=generator)
        targets = torch.randint(0, m["vocab"], shape, generator=generator)
        targets[torch.rand(shape, generator=generator) < 0.15] = -1
        w = {k: v.clone().requires_grad_() for k, v in weights.items()}
        logits, loss = loss_of(m, w, tokens[0], targets[0])
        loss.backward()

        out = {"tokens": tokens.float(), "targets": targets.float(), "logits": logits, "loss": loss}
        out = {k: v.to(torch.float32) if k in ("tokens", "targets") else v for k, v in out.items()}
        for k, v in weights.items():
            out["weight." + k] = v.to(torch.bfloat16)
            out["gradient." + k] = w[k].grad.to(torch.float32)
        runs = {}
        if name in ("gpt2", "olmo2"):
            runs["sgd"] = lambda p: torch.optim.SGD(p, lr=SGD_LR)
            for run, eps in (("adamw3", 1e-3), ("adamw8", 1e-8)):
                runs[run] = lambda p, eps=eps: torch.optim.AdamW(p, lr=ADAMW_LR, betas=BETAS, eps=eps,
                                                                 weight_decay=DECAY)
        for run, make in runs.items():
            losses, final = optimize(m, weights, tokens, targets, make)
            out[run + ".losses"] = torch.tensor(losses)
            for k, v in final.items():
                out[f"{run}.{k}"] = v.detach().flatten()[::STRIDE].to(torch.float32)
        path = os.path.join(folder, name + ".safetensors")
        write(path, out)
        print(f"{path}: {os.path.getsize(path)} bytes, {sum(v.numel() for v in weights.values())} "
              f"parameters, loss {loss.item():.6f}, torch {torch.__version__}")


main()
