"""Texts of errors name pages of the documentation so that who reads them finds them."""

from __future__ import annotations

from email.message import Message

from shaderloom.as_onnxruntime.names import absent
from shaderloom.runtime.plan import manual


def installed(monkeypatch, tmp_path, *addresses: str) -> None:
    """Let the package be a wheel's, whose metadata has addresses."""
    message = Message()
    for address in addresses:
        message["Project-URL"] = address
    monkeypatch.setattr(manual, "_ROOT", tmp_path)
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: message)


def test_a_page_of_a_checkout_is_its_path():
    assert manual.manual_page("guide/shapes.md") == "docs/guide/shapes.md"


def test_a_page_of_a_release_has_its_address(monkeypatch, tmp_path):
    addresses = ("Repository, https://example.org/a", "Documentation, https://example.org/a/blob/v1/docs")
    installed(monkeypatch, tmp_path, *addresses)
    assert manual.manual_page("guide/shapes.md") == "https://example.org/a/blob/v1/docs/guide/shapes.md"


def test_a_page_without_an_address_has_its_name(monkeypatch, tmp_path):
    installed(monkeypatch, tmp_path)
    assert manual.manual_page("guide/shapes.md") == "the page guide/shapes of the documentation"
    text = str(absent("onnxruntime", "LoraAdapter"))
    assert "[the page guide/onnxruntime-api of the documentation lists what there is]" in text
