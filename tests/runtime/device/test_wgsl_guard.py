"""Texts that would end the process inside wgpu-native are refused, however they are spelled; the compiler's are not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from shaderloom.runtime.device.wgsl_guard import MAX_INLINED, MAX_SCALARS, check, without_comments
from shaderloom.runtime.device.wgsl_plain import is_plain
from shaderloom.runtime.device.wgsl_values import check_values
from shaderloom.runtime.plan.errors import LimitError

from ...support.golden import FOLDER
from ...support.hostile_shaders import EXPANDING, doubled, shader
from ...support.patience import patient
from ...support.work import calls_of


@pytest.mark.parametrize("name", EXPANDING)
def test_texts_that_expand_are_refused(name):
    def refuse() -> None:
        with pytest.raises(LimitError, match="the shader of a kernel "):
            check(EXPANDING[name], 1 << 20, "a kernel")

    assert calls_of(refuse) < 100 * len(EXPANDING[name])


@pytest.mark.parametrize("path", sorted((FOLDER / "wgsl").glob("*.wgsl")), ids=lambda path: path.stem)
def test_shaders_of_the_compiler_are_accepted(path):
    check(path.read_text(), 1 << 20, path.name)


ACCEPTED = {
    "a small table": shader("", "let t = array<u32, 9>(1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u); y[0] = f32(t[id.x]);" * 50),
    "a tile": shader("", "var t: array<array<vec4<f32>, 8>, 8>;" + "t[id.x][id.y] = vec4<f32>(1.0);" * 200),
    "workgroup memory": shader("var<workgroup> t: array<f32, 4096>;", "t[id.x] = 1.0; workgroupBarrier();" * 200),
    "arithmetic": shader("", "let a0 = y[id.x]; " + " ".join(f"let a{i + 1} = a{i} * a{i};" for i in range(500))),
    "comments": shader("/* a /* nested // */ one ((( */ // ((( \u00e9", "y[0] = 1.0; // \u4e2d"),
    "members of a struct of many": shader(
        f"struct S {{ {', '.join(f'n{number}: i32' for number in range(90))} }} var<private> s: S;",
        " ".join(f"let t{number} = (s.n{number} & 15); y[0] = f32(t{number});" for number in range(90)),
    ),
    "calls": shader("fn f(x: f32) -> f32 { return x * x; }", "y[0] = f(y[id.x]);" * 500),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_texts_are_accepted(name):
    check(ACCEPTED[name], 1 << 20, "a kernel")


#: A uniform of scalars, as shared kernels have it
UNIFORM = "struct Sizes { a: f32, b: i32 } @group(0) @binding(1) var<uniform> sizes: Sizes;"


def test_texts_that_are_plain_are_within_the_bounds():
    goldens = [path.read_text() for path in (FOLDER / "wgsl").glob("*.wgsl")]
    expanding = [text for name, text in EXPANDING.items() if name != "levels of other types"]  # which is cheaper to see
    for text in map(without_comments, [*expanding, *ACCEPTED.values(), *goldens]):
        if is_plain(text, MAX_SCALARS, MAX_INLINED):
            check_values(text, MAX_SCALARS, MAX_INLINED)
    plain = [is_plain(without_comments(text), MAX_SCALARS, MAX_INLINED) for text in goldens]
    assert plain.count(True) > 0.9 * len(goldens)


@pytest.mark.parametrize(
    "text",
    [
        shader("", "var p: array<f32, 32>; " + "{ var q = p; y[0] = q[id.x]; }" * 9),
        shader("", "var p: array<f32, 32>; let r = &p; y[0] = (*r)[id.x];"),
        shader("fn f() -> array<f32, 32> { return array<f32, 32>(); }", "y[0] = f()[id.x];"),
        shader("fn f(p: array<f32, 32>) -> f32 { return p[0]; }"),
        shader("", "var p: array<vec4f, 8>; p[id.x].x = 1.0;"),
        shader("", "var p: array<mat4x4<f32>, 8>; p[id.x][0].x = 1.0;"),
        shader("", "var p: array<f32, N>; p[id.x] = 1.0;") + "const N = 4;",
        shader("struct S { a: f32, b: vec4<f32> }", "var s: S; s.a = 1.0;"),
        shader(UNIFORM, "let t = sizes; y[0] = t.a;"),
        shader(UNIFORM, "let t = &sizes; y[0] = (*t).a;"),
        shader(UNIFORM, "var t: Sizes; y[0] = t.a;"),
        shader(UNIFORM, "y[0] = Sizes(1.0, 2).a;"),
        shader(f"{UNIFORM} fn f() -> Sizes {{ return sizes; }}", "y[0] = f().a;"),
        shader(f"{UNIFORM} struct T {{ s: Sizes }}", "y[0] = sizes.a;"),
        shader(f"{UNIFORM} alias T = Sizes;", "y[0] = sizes.a;"),
        shader(f"{UNIFORM} var<private> t: Sizes;", "y[0] = t.a;"),
        shader("struct S { a: array<f32, 64> } @group(0) @binding(1) var<uniform> s: S;", "y[0] = s.a[0];"),
        shader("", f"var p: array<f32, {MAX_SCALARS}>; p[id.x] = 1.0; var q: array<f32, 1>; q[0] = 1.0;"),
        shader("fn f(x: f32) -> f32 { return g(x); } fn g(x: f32) -> f32 { return x; }", "y[0] = f (1.0);"),
        shader(f"fn weigh(x: f32) -> f32 {{ return x{' + x' * 200}; }}", "y[0] = weigh (weigh(1.0));" * 200),
    ],
)
def test_other_texts_take_a_closer_look(text):
    assert not is_plain(text, MAX_SCALARS, MAX_INLINED)


def test_uniforms_of_scalars_are_plain():
    text = shader(
        f"{UNIFORM} fn f(x: f32) -> f32 {{ return x * sizes.a; }}",
        "var sizes2 = sizes.b; y[0] = f(sizes.a) + f32(sizes2);",
    )
    assert not is_plain(text, MAX_SCALARS, MAX_INLINED), "sizes2 begins with the name of a uniform"
    assert is_plain(text.replace("sizes2", "t"), MAX_SCALARS, MAX_INLINED)
    compute = shader(f"{UNIFORM} fn put(x: f32) -> f32 {{ return x * sizes.a; }}", "y[0] = put(sizes.a);")
    assert is_plain(compute, MAX_SCALARS, MAX_INLINED), "@compute is another word than put"


def repeated(text: str, size: int = 1 << 20) -> str:
    return text * (size // len(text))


#: Texts of a megabyte
LONG: dict[str, Callable[[], str]] = {
    "spaces": lambda: "var" + repeated(" "),
    "one word": lambda: repeated("var"),
    "variables without an end": lambda: repeated("var<storage> ", 100_000) + repeated("+ a ", 160_000) + repeated(" "),
    "functions": lambda: "".join(f"fn g{number:x}(){{}}" for number in range(80_000)),
    "arrays": lambda: "".join(f"var v{number:05}: array<f32, 0>;" for number in range(32_000)),
    "comments": lambda: repeated("/*/ "),
    "structs": lambda: "".join(f"struct S{number:06}{{a:f32}}" for number in range(40_000)),
    "a struct without an end": lambda: "struct S {" + repeated("a: f32, "),
    "uniforms": lambda: UNIFORM + repeated("var<uniform> sizes: Sizes;"),
    "one struct": lambda: repeated("struct"),
    "spaces of a function": lambda: "fn" + repeated(" "),
    "declarations in reverse": lambda: "".join(f"const c{number}=c{number + 1};" for number in range(64_000)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_texts_take_linear_time(name):
    """What grows with the square of a megabyte does not end."""
    text = LONG[name]()
    with patient(), contextlib.suppress(LimitError):
        assert calls_of(lambda: check(text, 1 << 22, "a kernel")) < 4 * len(text)


def test_comments_are_those_of_wgsl():
    assert without_comments("a/* b // */c") == "a c"
    assert without_comments("a/* /* */ b */c//d\re//f\ng\u2028//\u2028h") == "a c \re \ng\u2028 \u2028h"
    assert without_comments("a/* b") == "a"


@pytest.mark.slow
@pytest.mark.parametrize("checked", [True, False])
def test_a_driver_survives_what_is_just_accepted(device, checked):
    levels = MAX_SCALARS.bit_length() - 7
    functions = MAX_INLINED.bit_length() - 6
    whole = f"var q = c{levels}; y[0] = q[0]{'[0]' * levels};"
    texts = [
        shader("\n".join(doubled(levels)), whole),
        shader("", " ".join(doubled(levels, "let", "array(y[0], y[1])")) + whole),
        shader(f"var<private> p: array<f32, {MAX_SCALARS}>;", "y[0] = p[id.x];"),
        shader("fn f0(x: f32) -> f32 { return x; }\n" + "\n".join(
            f"fn f{i + 1}(x: f32) -> f32 {{ return f{i}(x) + f{i}(x); }}" for i in range(functions)),
            f"y[0] = f{functions}(y[1]);"),
        shader("", "y[0] = " + "(" * 990 + "1.0" + ")" * 990 + ";"),
        shader("", "y[0] = " + "- " * 5900 + "y[1];"),
        shader("", "y[0] = " + "f32(0.0 < " * 990 + "y[1]" + ")" * 990 + ";"),
    ]  # fmt: skip
    for text in texts:
        module = device.create_module(text, checked=checked, label="a kernel", max_bytes=1 << 20)
        device.gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
