"""What ``shaderloom serve`` answers, without a browser."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

import shaderloom
from shaderloom.cli import app
from shaderloom.runtime.bundle.files import open_files
from shaderloom.serve.files import bundle_resources, page_resources, runner_resources
from shaderloom.serve.site import HOST, Site

from ...support.bundles import files_of, small_bundle
from ...support.patience import PATIENCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_bundle(tmp_path_factory.mktemp("served") / "small.shaderbundle", 5)


@pytest.fixture
def site():
    with Site({**page_resources(), **runner_resources()}) as running:
        yield running


def ask(site: Site, path: str, *, method: str = "GET", host: str | None = None):
    """Status, headers and body."""
    port = urlsplit(site.url).port
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"{HOST}:{port}")
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/shaderloom.js", "text/javascript"),
        ("/shaderloom/session.js", "text/javascript"),
    ],
)
def test_the_page_and_its_files(site, path, content_type):
    status, headers, body = ask(site, path)
    assert status == 200
    assert headers["Content-Type"].startswith(content_type)
    assert len(body) == int(headers["Content-Length"]) > 500
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_every_file_that_the_page_names_is_there(site):
    page = ask(site, "/")[2].decode()
    names = [name for name in re.findall(r'(?:src|href)="([^"]+)"', page) if not name.startswith("data:")]
    for name in names:  # which grows
        status, _, body = ask(site, f"/{name}")
        assert status == 200, name
        imported = re.findall(r'from "\./([^"]+)"', body.decode()) if name.endswith(".js") else []
        names += {(PurePosixPath(name).parent / other).as_posix() for other in imported} - set(names)
    assert {"page.css", "page.js", "shaderloom.js", "shaderloom/errors.js", "values.js", "pictures.js"} <= set(names)


@pytest.mark.parametrize(
    "path", ["/__init__.py", "/site.py", "/../pyproject.toml", "/%2e%2e/pyproject.toml", "/bundle/", "/x"]
)
def test_nothing_else_is_served(site, path):
    assert ask(site, path)[0] == 404


def test_other_hosts_and_methods_are_refused(site):
    assert ask(site, "/", host="elsewhere.example")[0] == 421
    assert ask(site, "/", host="localhost.elsewhere.example:80")[0] == 421
    assert ask(site, "/", host="localhost")[0] == 200
    assert ask(site, "/", method="POST")[0] == 501
    status, headers, body = ask(site, "/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("host", ["[", "[::1", "]", "[x]:80", "a[b]"])
def test_hosts_that_are_none_are_answered(site, host, capfd):
    assert ask(site, "/", host=host)[0] in (400, 421)
    assert ask(site, "http://[/")[0] == 400
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("as_zip", [False, True], ids=["folder", "zip"])
def test_bundles_are_served_byte_for_byte(folder, tmp_path, as_zip):
    path = small_bundle(tmp_path / "b.zip", 5, as_zip=True) if as_zip else folder
    files = open_files(path)
    with Site(bundle_resources(files, "/bundle/")) as site:
        for name, content in files_of(folder).items():
            assert ask(site, f"/bundle/{name}")[2] == content
    files.close()


def test_a_file_that_changed_its_size_is_an_error(folder, tmp_path):
    path = small_bundle(tmp_path / "b", 5)
    files = open_files(path)
    with Site(bundle_resources(files, "/bundle/")) as site:
        (path / "manifest.sha256").write_text("")
        status, _, body = ask(site, "/bundle/manifest.sha256")
    assert status == 500
    assert b"has changed since the bundle was opened" in body


def test_a_port_in_use_is_told(site):
    with pytest.raises(shaderloom.InputError, match=r"cannot listen on port \d+: [A-Z].*--port"):
        Site({}, urlsplit(site.url).port)


def test_the_command_refuses_what_is_no_bundle(folder, tmp_path):
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "there is no bundle" in result.stderr
    path = small_bundle(tmp_path / "b", 5)
    (path / "manifest.json").write_bytes((path / "manifest.json").read_bytes() + b" ")
    result = CliRunner().invoke(app, ["serve", str(path)])
    assert result.exit_code == 1
    assert "manifest.json" in result.stderr


def test_the_command_serves_until_it_is_interrupted(folder, interrupts):
    """Two bundles of one name, each at an address of its own."""
    command = [sys.executable, "-m", "shaderloom", "serve", str(folder), str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"2 bundles are at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends\)\n", line)
        assert found, line
        connection = http.client.HTTPConnection(HOST, int(found[1]), timeout=PATIENCE)
        connection.request("GET", "/bundles.json")
        listed = json.loads(connection.getresponse().read())
        assert [entry["name"] for entry in listed] == ["small.shaderbundle"] * 2
        for entry in listed:
            connection.request("GET", f"/{entry['url']}manifest.json")
            assert connection.getresponse().read() == (folder / "manifest.json").read_bytes()
            assert f'load("{entry["url"]}"' in entry["code"]
        connection.close()
        assert len({entry["url"] for entry in listed}) == 2
        process.send_signal(2)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
