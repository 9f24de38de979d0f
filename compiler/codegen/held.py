"""Held results: a hook returns what memory has, and what is made of it follows where the template uses it.

A template fetches the next tile into registers while it multiplies the present one.  Arithmetic in the hook would wait
for the load in front of these multiplications, so it is a function that the template calls when it stores the tile.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from ...runtime.plan.record import record
from ..ir.dataflow import post_order
from ..symbolic import expr as ex
from ..symbolic import substitution
from ..symbolic.expr import Expr
from ..symbolic.lanes import LANES
from .emitter import Emitter, choices, packed_words
from .functions import HookFunction
from .spec import Hook
from .types import VECTOR_TYPES, wgsl_type
from .writer import Functions

#: The register of what is held, as elements
_HELD = "held"
_CALL = re.compile(rf" *return (\w+)\({_HELD}\);")
#: Operations that make zero of zero
_KEEP_ZERO = frozenset(("cast", "mul", "neg", "abs", "round_float16", "round_bfloat16"))


@record
class HeldResult:
    """The hook that returns what memory has, as ``kind``: packed words, or elements; what is made of that by
    ``function``, which is declared as ``maker`` if it is no helper."""

    hook: Hook
    kind: str
    is_packed: bool
    function: str
    maker: HookFunction | None


def held_result(hook: Hook, emitter: Emitter) -> HeldResult | None:
    """Take apart the held result of a hook, which ``emitter`` writes.

    Return None for one of which nothing is made, or that is made of several loads, or not zero of zero, which guards
    and templates hold where there is nothing to load, and for other hooks.  Guards may choose between loads of which
    the same is made.
    """
    if not hook.held or hook.result is None:
        return None
    conditions, ends = choices(hook.result)
    others = [end for end in ends if not (end.op == "const" and end.payload == 0)]
    forms = {_derived(end) for end in others}
    form = forms.pop() if len(forms) == 1 else None
    if form is None or form.dtype not in VECTOR_TYPES or not _keeps_zero(form):
        return None
    loads = _loads(hook.result, _load(others[0]).dtype)
    words = packed_words(loads) if hook.lanes == LANES and not hook.registers else None
    if words is not None and any(emitter.without_lane(each) is None for each in conditions):
        words = None
    if loads.dtype not in VECTOR_TYPES or (words is None and form.op == "register"):
        return None
    kind = wgsl_type(loads.dtype, hook.lanes) if words is None else words[0]
    unpack = None if words is None else emitter.functions.declare(words[1], str(LANES))
    maker = _maker(hook, form, kind, unpack, emitter.functions)
    function = maker if isinstance(maker, str) else maker.name
    return HeldResult(
        replace(hook, result=loads), kind, words is not None, function, None if isinstance(maker, str) else maker
    )


def _leaf(end: Expr) -> Expr | None:
    """Return the only leaf of a value besides constants."""
    leaves = {node for node in post_order([end], lambda node: node.args) if not node.args and node.op != "const"}
    return leaves.pop() if len(leaves) == 1 else None


def _derived(end: Expr) -> Expr | None:
    """Return a value that is made of one load as what is made of the register; None for any other."""
    load = _leaf(end)
    if load is None or load.op != "load":
        return None
    register = ex.register(_HELD, load.dtype)
    return substitution.replace(end, lambda node: register if node is load else None)


def _load(end: Expr) -> Expr:
    load = _leaf(end)
    assert load is not None
    return load


def _loads(value: Expr, dtype: str) -> Expr:
    """Return the loads that a result is made of, between its guards, and zeros."""
    if value.op == "guard":
        condition, inside, otherwise = value.args
        return ex.guard(condition, _loads(inside, dtype), _loads(otherwise, dtype))
    return ex.const(0, dtype) if value.op == "const" else _load(value)


def _keeps_zero(derived: Expr) -> bool:
    nodes = post_order([derived], lambda node: node.args)
    finite = all(math.isfinite(node.payload) for node in nodes if node.op == "const")
    return finite and all(node.op in _KEEP_ZERO for node in nodes if node.args)


def _maker(hook: Hook, derived: Expr, kind: str, unpack: str | None, functions: Functions) -> HookFunction | str:
    """Return the function that makes the result, or the name of a helper that does; ``unpack`` takes ``kind`` apart."""
    if derived.op == "register" and unpack is not None:
        return unpack
    emitter = Emitter({}, frozenset(), frozenset(), functions, frozenset({_HELD} if hook.lanes == LANES else ()))
    if unpack is not None:
        emitter.write(f"let {_HELD} = {unpack}(words);")
    rendered = emitter.vector(derived) if hook.lanes == LANES else emitter.scalar(derived)
    assert isinstance(rendered, str), "a held result has a vec4 form, or one lane"
    emitter.write_return(rendered)
    call = _CALL.fullmatch(emitter.lines[0])
    if call is not None:
        return call[1]
    parameter = (_HELD if unpack is None else "words", kind)
    return HookFunction(f"made_{hook.name}", (parameter,), wgsl_type(derived.dtype, hook.lanes), tuple(emitter.lines))
