"""Short shaders that naga or a driver would write out to millions of scalars, or that nest too deeply, and other texts
at the edges of what the guards read."""

from __future__ import annotations

from pathlib import Path

#: Texts that a run guided by coverage found, or is to begin with
KEPT = Path(__file__).resolve().parents[1] / "data" / "shaders"

HEAD = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"
MAIN = "@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {"


def doubled(levels: int, keyword: str = "const", first: str = "array(1.0, 1.0)") -> list[str]:
    """``c0`` to ``c<levels>``, each twice the one before."""
    return [f"{keyword} c0 = {first};", *(f"{keyword} c{i + 1} = array(c{i}, c{i});" for i in range(levels))]


def structs(levels: int) -> list[str]:
    return ["struct S0 { a: f32, b: f32 }", *(f"struct S{i + 1} {{ a: S{i}, b: S{i} }}" for i in range(levels))]


def shader(module: str = "", body: str = "y[0] = 1.0;") -> str:
    return f"{HEAD}{module}\n{MAIN} {body} }}\n"


def types(levels: int) -> str:
    return "array<" * levels + "f32" + ", 2>" * levels


#: By name: a shader of about a kilobyte that naga or a driver would write out to millions of scalars
EXPANDING = {
    "constants": shader("\n".join(doubled(24)), "var q = c24;"),
    "constants in reverse": shader("\n".join(reversed(doubled(24))), "var q = c24;"),
    "local constants": shader("", " ".join(doubled(24)) + " var q = c24;"),
    "values": shader("", " ".join(doubled(22, "let", "array(y[0], y[1])")) + " var q = c22;"),
    "one expression": shader("", "let q = " + "array(" * 11 + "1.0" + ", 1.0" * 2048 + ")" * 11 + ";"),
    "a constructor with a type": shader("", f"let q = {types(20)}();"),
    "an alias": shader(f"alias A = {types(20)};", "let q = A();"),
    "aliases": shader(
        "alias A0 = f32;" + "".join(f"alias A{i + 1} = array<A{i}, 2>;" for i in range(20)), "var q: A20;"
    ),
    "aliases in reverse": shader("alias B = array<A, 64>; alias A = array<f32, 64>;", "var q: B;"),
    "structs": shader("\n".join(structs(20)), "let q = S20();"),
    "structs in reverse": shader("\n".join(reversed(structs(4))) + "alias A = array<S4, 128>;", "var q = A();"),
    "a private variable": shader("var<private> p: array<f32, 100000>;"),
    "a private variable of vectors": shader("var<private> p: array<vec4<f32>, 1024>;"),
    "a named count": shader("const N = 0x186a0u;\nvar<private> p: array<f32, N>;"),
    "a named count, later": shader("var<private> p: array<f32, N>;\nconst N: u32 = 100000;"),
    "a computed count": shader("var<private> p: array<f32, 1000 * 100>;"),
    "a local variable": shader("", "var p: array<f32, 1000000>; y[0] = p[id.x];"),
    "many variables": shader("", "".join(f"var p{i}: array<f32, 1000>; p{i}[id.x] = 1.0;" for i in range(100))),
    "copies": shader("", "var p: array<f32, 999>; " + "{ var q = p; y[0] = q[id.x]; }" * 99),
    "copies of members": shader(
        "struct S { a: array<f32, 999>, b: f32 }", "var s: S; " + "{ var q = s.a; y[0] = q[id.x]; }" * 99
    ),
    "members, later": shader("", "var s: S; " + "let q = s.a; " * 99) + "struct S { a: array<f32, 99> }",
    "copies by a pointer": shader("", "var p: array<f32, 999>; let r = &p; " + "{ var q = *r; y[0] = q[id.x]; }" * 99),
    "results": shader("fn f() -> array<f32, 1000> { return array<f32, 1000>(); }", "y[0] = f()[id.x];" * 100),
    "results, later": shader("", "y[0] = f()[id.x];" * 100) + "fn f() -> array<f32, 99> { return g(); }",
    "attributes of results": shader("fn f() -> @location(0) array<f32, 9999> { return q(); }", "y[0] = f()[id.x];"),
    "indexed constants": shader(f"const c = array({'1.0, ' * 400}1.0);", "y[0] = c[id.x];" * 100),
    "arguments": shader("fn f(p: array<f32, 1000>) -> f32 { return p[0]; }",
                        "var q: array<f32, 1000>; " + "y[0] = f(q);" * 100),
    "calls": shader("fn f0(x: f32) -> f32 { return x; }\n" + "\n".join(
        f"fn f{i + 1}(x: f32) -> f32 {{ return f{i}(x) + f{i}(x); }}" for i in range(25)), "y[0] = f25(y[1]);"),
    "calls in reverse": shader("\n".join(
        f"fn f{i + 1}(x: f32) -> f32 {{ return f{i}(x) + f{i}(x); }}" for i in reversed(range(25)))
        + "fn f0(x: f32) -> f32 { return x; }\n", "y[0] = f25(y[1]);"),
    "a level that shadows": shader("", "let c = array(1.0, 1.0); " + "{ let c = array(c, c); " * 24 + "}" * 24),
    "names beyond ASCII": shader("", "let a\u00b7 = array<f32, 9999>(); let b = array(a\u00b7, a\u00b7);"),
    "levels of a type": shader(f"alias A = {types(500)};"),
    "levels of other types": shader(f"fn zz(q: {'ptr<function, ' * 2900}f32{'>' * 2900}) {{}}"),
    "brackets": shader("", "y[0] = " + "(" * 5000 + "1.0" + ")" * 5000 + ";"),
    "brackets behind a comment in a comment": shader("", "y[0] = /* // */ " + "(" * 5000 + "1.0" + ")" * 5000 + ";"),
    "brackets behind another end of line": shader("", "// \r y[0] = " + "(" * 5000 + "1.0" + ")" * 5000 + ";"),
    "minus signs": shader("", "y[0] = " + "- " * 20000 + "1.0;"),
    "template brackets": shader("", "y[0] = " + "a<" * 20000 + "1.0;"),
}  # fmt: skip

#: By name: texts at the edges of what the guards read
EDGES = {
    "nothing": "",
    "a type that is cut off": "let a = " + "array<" * 20,
    "pointers that are cut off": "let a: " + "ptr<" * 33,
    "a count that begins with a zero": shader("", "var p: array<f32, 007>;"),
    "a count beyond nine digits": shader("", "var p: array<f32, 1000000000>;"),
    "a count in hexadecimals": shader("", "var p: array<f32, 0x400i>; var q: array<f32, 0X401u>;"),
    "aliases beyond doubles, none of them": shader(
        "alias A0 = f32;" + "".join(f"alias A{i + 1} = {'array<' * 30}A{i}{', 999999999>' * 30};" for i in range(3))
        + "alias B = array<A3, 0>;", "var b: B; " + " ".join(doubled(11)) + " var q = c11;"),
    "a circle of aliases": shader("alias A = array<B, 999999999>; alias B = array<A, 999999999>;"),
    "names of prototypes": shader("const __proto__ = array(1, 1); const constructor = array(__proto__, __proto__);"),
    "comments": "a/* b // */c/* /* */ ((( */d//e\r(//f\n\u2028//\u2028h/* x",
    "letters beyond ASCII": "let \u00e4 = 1;",
    "letters beyond sixteen bits": "// \U0001f600\nlet a = 1; /* \U0001f600 */ let \U0001d4d0 = 2;",
    "closing brackets": "}}}))]];" + shader(),
    "the end of a name": "let a = vec3",
    **{path.stem: path.read_text(encoding="utf-8") for path in sorted(KEPT.glob("*.wgsl"))},
}  # fmt: skip

#: What shaders consist of
WORDS = (
    *"(){}[]<>,;:=@.+&*", "//", "/*", "*/", "\n", "->", "array", "array<", "array(c, c)", "vec4<f32>", "mat4x4f",
    "ptr<", "struct", "fn", "let", "const", "var", "var<private>", "var<storage>", "override", "alias", "return", "f32",
    "0", "7", "0x20u", "1024", "@align(16)", "\u00e9",
)  # fmt: skip
