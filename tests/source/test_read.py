from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.source.document import SourceError
from gpulint.source.limits import MAX_BYTES
from gpulint.source.places import Places, lines
from gpulint.source.read import parse, read


def reason(path: str) -> str:
    with pytest.raises(SourceError) as caught:
        read(path)
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "content", "syntax"),
    [
        ("a.yaml", "a: 1\n", "yaml"),
        ("a.YML", "a: 1\n", "yaml"),
        ("a.json", '{"a": 1}', "json"),
        ("a.toml", "a = 1\n", "toml"),
    ],
)
def test_the_suffix_decides_the_syntax(config, name, content, syntax):
    document = read(config(name, content))
    assert (document.syntax, document.root.plain()) == (syntax, {"a": 1})


def test_the_text_is_kept_byte_for_byte(config):
    content = "\ufeffa: 1\r\nb: é  \r\n"
    assert read(config("a.yaml", content)).text == content


def test_an_empty_file_is_null_in_yaml_and_empty_in_toml(config):
    assert read(config("a.yaml", "")).root.plain() is None
    assert read(config("a.yaml", "# only this\n")).root.plain() is None
    assert read(config("a.toml", "")).root.plain() == {}


def test_what_is_no_readable_file_has_one_reason(config, tmp_path):
    assert reason(str(tmp_path / "none.yaml")) == "no such file"
    assert reason(str(tmp_path)) == "not a regular file but a directory"
    assert reason(os.devnull) == "not a regular file but a device"
    assert reason("a\0.yaml") == "not a valid file name"
    assert reason(str(tmp_path / ("x" * 300 + ".yaml"))) == "cannot be read: file name too long"
    assert reason(config("file.yaml", "a: 1") + "/below.yaml") == "cannot be read: not a directory"
    assert reason(config("a.txt", "a: 1")).startswith("unknown file type")


def test_a_fifo_and_a_socket_are_refused_without_waiting(tmp_path):
    fifo = str(tmp_path / "a.yaml")
    os.mkfifo(fifo)
    assert reason(fifo) == "not a regular file but a FIFO"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "b.yaml"))
        assert reason(str(tmp_path / "b.yaml")) == "not a regular file but a socket"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(config):
    path = config("a.yaml", "a: 1")
    os.chmod(path, 0)
    assert reason(path) == "permission denied"


def test_permission_denied_is_told_apart(config, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = config("a.yaml", "a: 1")
    monkeypatch.setattr(os, "open", refuse)
    assert reason(path) == "permission denied"


def test_the_size_is_capped(config):
    assert read(config("most.yaml", "# " + "x" * (MAX_BYTES - 2))).root.plain() is None
    assert reason(config("more.yaml", "# " + "x" * (MAX_BYTES - 1))) == "larger than 1 MiB"
    with pytest.raises(SourceError, match="larger than 1 MiB"):
        parse("x" * (MAX_BYTES + 1), "a.yaml", "yaml")


def test_what_is_not_utf8_names_the_place(config):
    with pytest.raises(SourceError) as caught:
        read(config("a.yaml", b"a: \xc3\xa9\nb: x\xff\n"))
    assert (caught.value.line, caught.value.column) == (2, 5)
    assert "byte 0xff at offset 10" in caught.value.reason
    assert "UTF-16" in reason(config("b.yaml", "a: 1".encode("utf-16")))


def test_an_unknown_syntax_is_refused():
    with pytest.raises(SourceError, match="unknown syntax ini"):
        parse("", "a.ini", "ini")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80), st.sampled_from(["a.yaml", "a.json", "a.toml"]))
def test_any_bytes_read_or_raise_source_error(config, content, name):
    try:
        document = read(config(name, content))
    except SourceError:
        return
    assert document.roots
    assert document.text.encode() == content


def test_places_count_characters_and_every_kind_of_line_end():
    text = "\ufeffé😀\r\nb\rc\n\nd"
    places = Places(text)
    assert [places.at(text.index(each)) for each in "é😀bcd"] == [(1, 1), (1, 2), (2, 1), (3, 1), (5, 1)]
    assert places.at(0) == (1, 1)
    assert lines(text) == ["é😀", "b", "c", "", "d"]
    assert places.span(1, 6) == (1, 1, 2, 2, 1, 6)


def test_reading_json_imports_neither_yaml_nor_json():
    modules = ("yaml", "json", "ruamel.yaml", "pydantic")
    show = f"print([name for name in {modules} if name in sys.modules])"
    read_one = "from gpulint.source.read import parse; parse('[1]', 'a.json', 'json');"
    printed = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for code in (f"import sys, gpulint; {show}", f"import sys; {read_one} {show}")
    ]
    assert printed[0] == printed[1]
