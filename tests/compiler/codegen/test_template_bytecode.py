"""Compiled templates: used when they are what the text would give, and never otherwise."""

import marshal
import os
import sys
from pathlib import Path

import jinja2
import pytest

from shaderloom.compiler.codegen.template_bytecode import TemplateBytecode

TEXT = {"gemm/a.wgsl.j2": "{% for i in range(n) %}\nx{{ i }};\n{% endfor %}\n"}
EXPECTED = "x0;\nx1;\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    return tmp_path


def render(folder, monkeypatch, text=TEXT, options="o", **changed):
    """Return the text that a new environment renders, and whether it compiled the template."""
    compiled = []
    original = jinja2.Environment.compile
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *a, **k: compiled.append(a) or original(*a, **k))
    settings = {"trim_blocks": True, "keep_trailing_newline": True, **changed}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(text), bytecode_cache=TemplateBytecode(str(folder), options), **settings
    )
    result = environment.get_template("gemm/a.wgsl.j2").render(n=2)
    monkeypatch.setattr(jinja2.Environment, "compile", original)
    return result, bool(compiled)


def only_file(folder) -> Path:
    (file,) = (folder / "__pycache__").iterdir()
    return file


def test_the_second_process_does_not_compile(folder, monkeypatch):
    assert render(folder, monkeypatch) == (EXPECTED, True)
    assert only_file(folder).name == f"gemm.a.wgsl.{sys.implementation.cache_tag}.pyc"
    assert render(folder, monkeypatch) == (EXPECTED, False)


def test_another_text_or_other_options_are_compiled(folder, monkeypatch):
    render(folder, monkeypatch)
    assert render(folder, monkeypatch, {"gemm/a.wgsl.j2": "y{{ n }}"}) == ("y2", True)
    assert render(folder, monkeypatch) == (EXPECTED, True)
    assert render(folder, monkeypatch, options="p", trim_blocks=False) == ("\nx0;\n\nx1;\n\n", True)
    monkeypatch.setattr(jinja2, "__version__", "99")
    assert render(folder, monkeypatch) == (EXPECTED, True)


def test_damaged_and_foreign_files_are_not_loaded(folder, monkeypatch):
    render(folder, monkeypatch)
    file = only_file(folder)
    right = file.read_bytes()
    other = marshal.dumps(compile("raise SystemExit", "x", "exec"))
    for wrong in (b"", right[:-1], right[:40], right[:36] + other, bytes(4) + right[4:], right + b"0"):
        file.write_bytes(wrong)
        assert render(folder, monkeypatch) == (EXPECTED, True)
        assert file.read_bytes() == right
    assert os.listdir(file.parent) == [file.name]


def test_without_a_folder_to_write_to_it_has_no_effect(folder, monkeypatch):
    (folder / "__pycache__").write_text("a file")
    assert render(folder, monkeypatch) == (EXPECTED, True)
    (folder / "__pycache__").unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render(folder, monkeypatch) == (EXPECTED, True)
    assert list(folder.iterdir()) == []


def test_a_prefix_for_bytecode_holds(folder, monkeypatch, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    render(folder, monkeypatch)
    assert list(folder.iterdir()) == []
    assert render(folder, monkeypatch) == (EXPECTED, False)
