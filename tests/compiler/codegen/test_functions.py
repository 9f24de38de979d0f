"""Functions of a kernel's text: the parameters that they read, and hooks that are no functions.

Covers: compiler/codegen/functions.py.
"""

from __future__ import annotations

from shaderloom.compiler.codegen.functions import HookFunction, with_calls_of

LOAD = HookFunction("load", (("batch", "i32"), ("m", "i32"), ("step", "i32")), "f32", ("  return x0[m * 4 + step];",))
TEMPLATE = """
fn padded(batch: i32, m: i32, step: i32) -> f32 {
  var value = f32();
  if (step < @@size:steps@@) { value = load(batch, m, step); }
  return value;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let batch = i32(id.z);
  let plane = batch * 2;
  let m = i32(id.x);
  y[m] = padded(plane, min(m, (3 + 4)), 1);
}
"""


def hook(name: str, line: str, *parameters: str) -> HookFunction:
    return HookFunction(name, tuple((each, "i32") for each in parameters), "i32", (f"  {line}",))


def test_what_is_not_read_is_no_parameter():
    assert LOAD.text == "fn load(m: i32, step: i32) -> f32 {\n  return x0[m * 4 + step];\n}"
    text = with_calls_of(TEMPLATE, [LOAD])
    assert "value = load(m, step);" in text


def test_functions_of_templates_pass_on_what_is_read_alone():
    text = with_calls_of(TEMPLATE, [LOAD])
    assert "fn padded(m: i32, step: i32) -> f32 {" in text
    assert "y[m] = padded(min(m, (3 + 4)), 1);" in text
    assert "batch" not in text and "plane" not in text
    assert "let m = i32(id.x);" in text


def test_all_that_is_read_stays():
    whole = HookFunction(LOAD.name, LOAD.parameters, "f32", ("  return x0[batch + m + step];",))
    assert with_calls_of(TEMPLATE, [whole]) == TEMPLATE
    assert whole.text.startswith("fn load(batch: i32, m: i32, step: i32) -> f32 {")


def test_stores_have_no_type():
    store = HookFunction("store", (("n", "i32"), ("value", "vec4<f32>")), "", ("  y[n] = value;",))
    assert store.text == "fn store(n: i32, value: vec4<f32>) {\n  y[n] = value;\n}"


def test_a_hook_that_returns_its_argument_is_no_function():
    same, zero = hook("row", "return line;", "image", "line"), hook("image", "return 0;", "line")
    assert (same.text, zero.text) == ("", "")
    text = with_calls_of("let a = row(1, i + 2) * 3 + image(row(4, at(5, 6)));\n", [same, zero])
    assert text == "let a = (i + 2) * 3 + 0;\n"
    assert with_calls_of("let a = row(1, j) - other_row(1, i);", [same]) == "let a = j - other_row(1, i);"


def test_calls_inside_of_calls():
    load = hook("load", "return x0[n + 1];", "m", "n")
    text = with_calls_of("put(load(a, load(b, c[i, j])), load(d, (e + f)));", [load])
    assert text == "put(load(load(c[i, j])), load((e + f)));"


def test_a_hook_without_parameters_is_its_number():
    start = hook("initial", "return problem.n3;")
    assert with_calls_of("var sum = vec4<i32>(initial());", [start]) == "var sum = vec4<i32>(problem.n3);"
    assert hook("initial", "return -infinity_1();").text == "fn initial() -> i32 {\n  return -infinity_1();\n}"
