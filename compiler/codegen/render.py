"""KernelSpec to Kernel: runs the Jinja templates.

Templates hold loops, macros and booleans; they ask ``dim("M")`` for sizes (a literal, or a field of the ``symbols``
uniform when the dimension is declared dynamic) and call hooks by name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...runtime.plan.dtypes import BY_NAME, UINT32
from ...runtime.plan.errors import DeviceLimitError
from ...runtime.plan.plan import Binding, Kernel
from ...runtime.plan.record import fields_by_name
from ..symbolic import expr as ex
from ..symbolic.lanes import LANES, is_aligned
from ..symbolic.polynomial import Dim
from .emitter import PAIRED, Emitter
from .functions import HookFunction, with_calls_of
from .held import HeldResult, held_result
from .helpers import helper_text, with_dependencies
from .hidden_uniforms import hide
from .spec import LONG_WORDS, BoundTensor, Hook, KernelSpec
from .stored_range import with_stored_range
from .stores import emit_store, owns_words
from .templates import environment, kernel_file
from .types import VECTOR_TYPES, wgsl_type
from .writer import Functions, Numbers, symbol_field

#: Longest shader text that is handed to a driver; long functions take naga minutes (settable by the caller's caps)
MAX_WGSL_CHARACTERS = 1 << 20


def element_type(operand: BoundTensor, wide: bool, paired: bool = False, words: bool = False) -> str:
    """Return the WGSL element type of an operand's array; ``paired`` ones hold two elements in a 64-bit word, and
    packed bytes that are read as ``words`` four words."""
    storage = BY_NAME[operand.dtype]
    if paired:
        return "vec2<u64>"
    if storage.bits == 64:
        return "vec2<u32>"
    if storage.packing == 4:
        return "vec4<u32>" if words else "u32"
    if storage.packing == 2:
        return "vec2<u32>" if wide else "u32"
    return wgsl_type(storage.compute, LANES if wide else 1)


class _SizeEmitter(Emitter):
    """Writes sizes as expressions without statements of their own: they stand anywhere in a template."""

    def name(self, text: str, prefix: str = "t") -> str:
        return f"({text})"

    def _field(self, value: int) -> str | None:
        """Return a field that holds a number, also a small one: a size is never the number of a lane."""
        numbers = self.functions.numbers
        return None if numbers is None or abs(value) >= 1 << 31 else numbers.field(value)


def render(spec: KernelSpec, numbers: Numbers | None = None) -> Kernel:
    """Render the shader of ``spec``: a pure function.

    With ``numbers`` the text reads its sizes from fields of ``problem``, which is declared nowhere yet
    (:mod:`.sharing`).
    """
    spec = replace(spec, hooks=tuple(each for hook in spec.hooks for each in _functions_of(hook)))
    functions = Functions(numbers=numbers, by_bits=spec.by_bits)
    aligned = _aligned_loads(spec)
    wide = _vector_operands(spec, aligned)
    paired = _paired_operands(spec, wide)
    words = _word_operands(spec, aligned)
    buffers: dict[object, str] = {operand.name: operand.name for operand in spec.operands}
    symbols = frozenset(spec.symbols)

    ranged = {} if spec.stored_range is None else {spec.operands[-1].name: spec.stored_range.elements}
    hooks: list[HookFunction] = []
    held: dict[str, tuple[str, str]] = {}
    for hook in spec.hooks:
        vector_registers = frozenset(name for name, wgsl_type in hook.registers if wgsl_type.startswith("vec4"))
        emitter = Emitter(
            buffers, wide, symbols, functions, vector_registers if hook.lanes == LANES else frozenset(), paired, words
        )
        taken = held_result(hook, emitter)
        if taken is None:
            hooks.append(_hook_function(hook, emitter, wide, ranged))
            continue
        held[hook.name] = taken.kind, taken.function
        hooks.append(_loading_function(taken, emitter))
        if taken.maker is not None:
            hooks.append(taken.maker)

    sizes = _SizeEmitter(buffers, wide, symbols, functions)
    dims = dict(spec.dims)
    names = frozenset(hook.name for hook in spec.hooks)
    body = template_text(
        spec.template,
        spec.config,
        names,
        tuple(held.items()),
        spec.threads,
        spec.parameters,
        spelled=repr(spec.parameters),
    )
    wgsl = _PLACE_OF_SIZE.sub(lambda place: sizes.index(dims[place[1]]), with_calls_of(body, hooks))
    if spec.stored_range is not None:
        wgsl = with_stored_range(wgsl, spec.stored_range.form, spec.threads)
    # The helpers that a kernel needs are known only once everything else is rendered.
    types = {
        operand.name: element_type(operand, operand.name in wide, operand.name in paired, operand.name in words)
        for operand in spec.operands
    }
    wgsl = wgsl.replace(
        _PLACE_OF_DECLARATIONS, _declarations(spec, types, functions, [hook.text for hook in hooks if hook.text])
    )
    bindings = tuple(Binding(operand.name, operand.access, types[operand.name]) for operand in spec.operands)
    if spec.iterations is not None:
        bindings += (Binding("iteration", "iteration", "Iteration"),)
    if functions.symbols:
        bindings += (Binding("symbols", "uniform", "Symbols"),)
        if spec.hides_uniforms:
            wgsl = hide(wgsl, "symbols", "sizes", [symbol_field(name) for name in spec.symbols])
    features = tuple(name for name in spec.features if name != LONG_WORDS or paired)
    return _kernel(spec, wgsl, bindings, features)


def _functions_of(hook: Hook) -> tuple[Hook, ...]:
    """Return the hook, or where it reads first the one that returns what is stored, and the one that stores it."""
    if not hook.reads_first:
        return (hook,)
    (store,) = hook.stores
    dtype = store.value.dtype
    registers = (("value", wgsl_type(dtype, hook.lanes)),)
    stored = replace(store, value=ex.register("value", dtype))
    return (
        replace(hook, name="result", result=store.value, stores=()),
        replace(hook, registers=registers, stores=(stored,)),
    )


def _kernel(spec: KernelSpec, wgsl: str, bindings: tuple[Binding, ...], features: tuple[str, ...]) -> Kernel:
    """Return the kernel of a text.

    Raises :class:`DeviceLimitError` for a text that no runner takes.
    """
    if len(wgsl) > MAX_WGSL_CHARACTERS:
        raise DeviceLimitError(
            f"a {spec.template} kernel has {len(wgsl):,} characters, more than {MAX_WGSL_CHARACTERS:,}",
            hint="turn fusion off for this model, or raise the cap",
        )
    config = tuple(sorted(fields_by_name(spec.config).items()))
    workgroup = (spec.threads, 1, 1)
    return with_key(Kernel("", spec.template, wgsl, workgroup, bindings, features, spec.workgroup_bytes, config))


def with_key(kernel: Kernel) -> Kernel:
    """Return the kernel with its key, a digest of all that its pipeline depends on."""
    identity: dict[str, Any] = {
        "template": kernel.template,
        "config": kernel.config,
        "wgsl": kernel.wgsl,
        "workgroup": kernel.workgroup,
        "bindings": [(binding.name, binding.access, binding.element) for binding in kernel.bindings],
        "features": kernel.features,
    }
    return replace(kernel, key=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest())


#: Stands in a text for the declaration of ``problem``
PLACE_OF_PROBLEM = "@@problem@@\n"
#: Placeholders in a template's text for the parts that differ among the kernels that share it
_PLACE_OF_DECLARATIONS, _PLACE_OF_SIZE = "@@declarations@@", re.compile("@@size:([^@]+)@@")


@lru_cache(maxsize=256)
def template_text(
    template: str,
    config: Any,
    hooks: frozenset[str],
    held: tuple[tuple[str, tuple[str, str]], ...],
    threads: int,
    parameters: tuple[tuple[str, Any], ...],
    spelled: str,
) -> str:
    """Render the template's text, with placeholders for sizes and declarations: other sizes share the same text.

    ``spelled`` distinguishes parameters that are equal as keys but not as text: True and 1, 0.0 and -0.0.
    """
    return (
        environment()
        .get_template(kernel_file(template))
        .render(
            config=config,
            dim=lambda name: f"@@size:{name}@@",
            hooks=hooks,
            held=dict(held),
            threads=threads,
            declarations=_PLACE_OF_DECLARATIONS,
            **dict(parameters),
        )
    )


def _aligned_loads(spec: KernelSpec) -> set[tuple[str, str]]:
    """Return operands of which some hook reads four aligned neighbours at a time, with the types that it reads."""
    loads: set[tuple[str, str]] = set()
    for hook in spec.hooks:
        if hook.lanes != LANES:
            continue
        values = [store.value for store in hook.stores] + [store.condition for store in hook.stores if store.condition]
        if hook.result is not None:
            values.append(hook.result)
        for value in values:
            for node in ex.loads(value):
                if is_aligned(node.payload.position):
                    loads.add((str(node.payload.operand), node.payload.dtype))
    return loads


def _vector_operands(spec: KernelSpec, aligned: set[tuple[str, str]]) -> frozenset[object]:
    """Return the operands that some hook reads or writes four elements at a time, where an entry holds so many."""
    stored = {store.operand for hook in spec.hooks if hook.lanes == LANES for store in hook.stores if owns_words(store)}
    operands = stored | {name for name, _ in aligned}
    types = {operand.name: BY_NAME[operand.dtype] for operand in spec.operands if operand.name in operands}
    return frozenset(name for name, dtype in types.items() if dtype.compute in VECTOR_TYPES and dtype.packing < LANES)


def _word_operands(spec: KernelSpec, aligned: set[tuple[str, str]]) -> frozenset[object]:
    """Return the operands of packed bytes of which some hook reads four words at a time."""
    return frozenset(
        operand.name
        for operand in spec.operands
        if BY_NAME[operand.dtype].packing == LANES and (operand.name, UINT32.name) in aligned
    )


def _paired_operands(spec: KernelSpec, wide: frozenset[object]) -> frozenset[object]:
    """Return the vector operands that are read as 64-bit words of two elements, where the spec asks for it.

    Software drivers load every word of every lane by itself: half as many words take little more than half the time.
    """
    if LONG_WORDS not in spec.features:
        return frozenset()
    stored = {store.operand for hook in spec.hooks for store in hook.stores}
    return frozenset(
        operand.name
        for operand in spec.operands
        if operand.name in wide and operand.name not in stored and operand.dtype in PAIRED
    )


def _declarations(spec: KernelSpec, types: Mapping[str, str], functions: Functions, hooks: list[str]) -> str:
    lines = []
    for number, operand in enumerate(spec.operands):
        array = f"array<{types[operand.name]}>"
        lines.append(f"@group(0) @binding({number}) var<storage, {operand.access}> {operand.name}: {array};")
    number = len(spec.operands)
    if spec.iterations is not None:
        lines.append("struct Iteration { number: i32, unused_0: i32, unused_1: i32, unused_2: i32 }")
        lines.append(f"@group(0) @binding({number}) var<uniform> iteration: Iteration;")
        number += 1
    if functions.symbols:
        fields = ", ".join(f"{symbol_field(name)}: i32" for name in spec.symbols)
        lines.append(f"struct Symbols {{ {fields} }}")
        lines.append(f"@group(0) @binding({number}) var<uniform> symbols: Symbols;")
    if functions.numbers is not None:
        lines.append(PLACE_OF_PROBLEM.removesuffix("\n"))
    lines += [helper_text(name, suffix) for name, suffix in with_dependencies(functions.helpers)]
    return "\n".join(lines + hooks)


def _parameters(hook: Hook) -> tuple[tuple[str, str], ...]:
    return (*((name, "i32") for name in hook.parameters), *hook.registers)


def _loading_function(held: HeldResult, emitter: Emitter) -> HookFunction:
    """Return the function of a hook whose result is held."""
    if not held.is_packed:
        return replace(_hook_function(held.hook, emitter, frozenset(), {}), returns=held.kind)
    assert held.hook.result is not None
    emitter.write_return(emitter.words(held.hook.result))
    return HookFunction(held.hook.name, _parameters(held.hook), held.kind, tuple(emitter.lines))


def _hook_function(hook: Hook, emitter: Emitter, wide: frozenset[object], ranged: Mapping[str, Dim]) -> HookFunction:
    returns = ""
    if hook.result is not None:
        returns = wgsl_type(hook.result.dtype, hook.lanes)
        rendered = emitter.vector(hook.result) if hook.lanes == LANES else emitter.scalar(hook.result)
        assert isinstance(rendered, str), "a hook returns types that have a vec4 form, or one lane"
        emitter.write_return(rendered)
    for store in hook.stores:
        emit_store(store, hook.lanes, emitter, wide, ranged.get(store.operand))
    return HookFunction(hook.name, _parameters(hook), returns, tuple(emitter.lines))
