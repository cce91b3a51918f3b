"""Fuse integer operators with the one that computes their input: one pass over the data less."""

from dataclasses import replace

import numpy as np

from accelc.compiler.graph import Node
from accelc.compiler.integer import AddStage, Post
from accelc.compiler.rewrite import Replacement, Rule, Scope

#: Operators that can look their result up before storing it.
_TABLE_HOSTS = ("int.conv", "int.matmul", "int.maxpool", "int.add", "int.scale", "int.lookup")


def _as_clamp(table: np.ndarray) -> tuple[int, int] | None:
    """Bounds of the clamp that ``table`` is, if it is one."""
    low, high = int(table[0]), int(table[-1])
    q = np.arange(-128, 128)
    return (low, high) if low <= high and np.array_equal(np.clip(q, low, high), table) else None


def _fuse_table(node: Node, scope: Scope) -> Replacement | None:
    source, out = node.inputs[0], node.outputs[0]
    table = scope.constants[node.inputs[1]]
    clamp = _as_clamp(table)
    if clamp == (-128, 127):
        return scope.done({out: source})
    host = scope.producer(source, *_TABLE_HOSTS)
    if host is None or not scope.sole_use(source):
        return None
    post: Post = host.attrs.get("post", Post())
    inputs = host.inputs
    if post.table:
        inner = scope.constants[inputs[-1]]
        composed = scope.add_constant(f"{node.name}/table", table[inner.astype(np.int64) + 128])
        inputs = (*inputs[:-1], composed)
    elif clamp is not None:
        post = _clamped(post, *clamp)
    else:
        inputs, post = (*inputs, node.inputs[1]), replace(post, table=True)
    scope.emit(host.op, inputs, out, {**host.attrs, "post": post}, name=host.name)
    return scope.done()


def _clamped(post: Post, low: int, high: int) -> Post:
    """``post`` followed by a clamp."""

    def narrow(stage: Post | AddStage) -> dict[str, int]:
        return {
            "min": min(max(stage.min, low), high),
            "max": max(min(stage.max, high), low),
        }

    if post.add is not None:
        return replace(post, add=replace(post.add, **narrow(post.add)))
    return replace(post, **narrow(post))


def _fuse_residual(node: Node, scope: Scope) -> Replacement | None:
    if not scope.config.add:
        return None
    post: Post = node.attrs["post"]
    assert post.add is not None
    table = node.inputs[2:]
    hosts: list[tuple[int, Node, str, AddStage]] = []
    a, b = node.inputs[:2]
    swapped = replace(post.add, m1=post.add.m2, m2=post.add.m1)
    for value, other, stage in ((a, b, post.add), (b, a, swapped)):
        host = scope.producer(value, "int.conv")
        if host is None or not scope.sole_use(value):
            continue
        inner: Post = host.attrs["post"]
        if inner.add is None and not inner.table and scope.shape(other) == scope.shape(value):
            hosts.append((scope.position(value), host, other, stage))
    if not hosts:
        return None
    # the operand computed last: the other one is in memory by then
    _, host, other, stage = max(hosts, key=lambda found: found[0])
    merged = replace(host.attrs["post"], add=stage, table=post.table)
    scope.emit(
        "int.conv",
        (*host.inputs, other, *table),
        node.outputs[0],
        {**host.attrs, "post": merged},
        name=host.name,
    )
    return scope.done()


FUSIONS = (
    Rule(
        "table-into-host",
        "int.lookup(int.conv(x)); likewise matmul, pool, add, scale, lookup",
        "int.conv(x) with a table, or with narrower bounds where the table is a clamp",
        _fuse_table,
        ("int.lookup",),
    ),
    Rule(
        "residual-into-conv",
        "int.add(int.conv(x), r)",
        "int.conv(x, residual r)",
        _fuse_residual,
        ("int.add",),
    ),
)
