"""The nccl.conf files as NCCL reads them, and what counts when a variable is set twice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from preflight.domains.settings.nccl_conf import (
    Variable,
    conf_lines,
    conf_problem,
    file_flaws,
    file_problems,
    graph_gpus,
    log_folder_missing,
    nccl_setting,
    nccl_variables,
)
from preflight.host import Host
from preflight.model import Fact


def planted(root: Path, files: Mapping[str, str], environ: Mapping[str, str]) -> Host:
    """A machine that has these files."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(str(root), environ)


FILES = {
    "/etc/nccl.conf": "NCCL_DEBUG=WARN\nNCCL_IB_HCA = mlx5\n# x\nOTHER=1\nNCCL_NET Socket\n",
    "/home/me/.nccl.conf": "NCCL_DEBUG=INFO\nNCCL_X=a=b\n",
    "/own.conf": "NCCL_Y=1\n",
}


def test_the_users_file_comes_first(tmp_path: Path) -> None:
    host = planted(tmp_path, FILES, {"HOME": "/home/me"})
    assert nccl_variables(host) == {
        "NCCL_DEBUG": Fact("INFO", "/home/me/.nccl.conf"),
        "NCCL_X": Fact("a=b", "/home/me/.nccl.conf"),
        "NCCL_IB_HCA ": Fact(" mlx5", "/etc/nccl.conf"),
    }


def test_a_named_file_stands_for_the_users(tmp_path: Path) -> None:
    host = planted(tmp_path, FILES, {"HOME": "/home/me", "NCCL_CONF_FILE": "/own.conf"})
    found = nccl_variables(host)
    assert found["NCCL_Y"].source == "/own.conf"
    assert found["NCCL_DEBUG"].source == "/etc/nccl.conf"
    relative = nccl_variables(planted(tmp_path, {}, {"NCCL_CONF_FILE": "relative.conf"}))
    assert {n for n, fact in relative.items() if fact.source != "env"} == {
        "NCCL_DEBUG",
        "NCCL_IB_HCA ",
    }


def test_lines_keep_their_place_and_what_sets_nothing(tmp_path: Path) -> None:
    found = list(conf_lines(planted(tmp_path, FILES, {})))
    assert Variable("NCCL_DEBUG", "WARN", "/etc/nccl.conf", 1) in found
    assert Variable("NCCL_NET Socket", "", "/etc/nccl.conf", 5, assigned=False) in found
    assert all("#" not in line.name for line in found)
    assert found[0].place == "/etc/nccl.conf line 1"


def test_a_carriage_return_is_part_of_the_value(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_bytes(b"NCCL_IB_DISABLE=1\r\nNCCL_NET=IB\n")
    assert {n: f.value for n, f in nccl_variables(Host(str(tmp_path), {})).items()} == {
        "NCCL_IB_DISABLE": "1\r",
        "NCCL_NET": "IB",
    }


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/nccl.conf")
    assert list(conf_lines(Host(str(tmp_path), {}))) == []


def test_a_setting_comes_from_the_environment_first(tmp_path: Path) -> None:
    files = {"/etc/nccl.conf": "NCCL_IB_HCA=mlx5_9\nNCCL_IB_PKEY=2\nNCCL_DEBUG=INFO"}
    host = planted(tmp_path, files, {"NCCL_IB_HCA": "mlx5_0", "NCCL_DEBUG": ""})
    names = ("NCCL_IB_HCA", "NCCL_IB_PKEY", "NCCL_NET", "NCCL_DEBUG")
    assert [nccl_setting(host, name) for name in names] == ["mlx5_0", "2", "", ""]


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("/opt/none.conf", "No such file or directory"),
        ("/" + "x" * 5000, "File name too long"),
        ("/a\0b", "embedded null byte"),
        ("/etc", "no regular file"),
        ("~/x.conf", "~ is not expanded"),
        ("relative.conf", ""),
        ("", ""),
    ],
)
def test_why_a_named_file_is_not_read(tmp_path: Path, named: str, problem: str) -> None:
    host = planted(tmp_path, {"/etc/nccl.conf": "NCCL_DEBUG=INFO"}, {"NCCL_CONF_FILE": named})
    assert conf_problem(host) == problem


def test_files_that_nccl_can_not_read(tmp_path: Path) -> None:
    environ = {"NCCL_TOPO_FILE": "/topo.xml", "NCCL_GRAPH_FILE": "/gone.xml"}
    assert file_problems(planted(tmp_path, {"topo.xml": "<system/>"}, environ)) == {
        "NCCL_GRAPH_FILE": "No such file or directory"
    }
    assert file_problems(planted(tmp_path, {}, {"NCCL_TOPO_FILE": ""})) == {}


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ('<system version="1">\n\t<cpu/></system>', ""),
        ("\n <!-- two sockets -->\n<system/>", ""),
        ("", ""),
        ("404: Not Found", "text, not an XML element"),
        ('<?xml version="1.0"?>\n<system/>', "an XML declaration"),
        ("<!DOCTYPE html><html>", "a document type"),
        ("\t<system/>", "a tab"),
        # a job may name any file, and root reads it in a prolog
        ("root:$6$salt$hash:19000:0:99999:7:::\n", "text, not an XML element"),
        ("version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
    ],
)
def test_how_a_file_begins_that_nccl_can_not_parse(tmp_path: Path, text: str, begins: str) -> None:
    host = planted(tmp_path, {"topo.xml": text}, {"NCCL_TOPO_FILE": "/topo.xml"})
    assert file_flaws(host).get("NCCL_TOPO_FILE", "") == begins


def test_no_file_has_no_beginning(tmp_path: Path) -> None:
    environ = {"NCCL_TOPO_FILE": "/gone.xml", "NCCL_GRAPH_FILE": "topo.xml"}
    assert file_flaws(planted(tmp_path, {"topo.xml": "404"}, environ)) == {}


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ("/own/nccl.%h.%p", ""),
        ("/logs/nccl.log", "/logs"),
        ("/logs/%h/nccl.log", "/logs"),
        ("/own/%h/nccl.log", ""),
        ("nccl.log", ""),
        ("stdout", ""),
        ("/nccl.log", ""),
        ("", ""),
    ],
)
def test_the_folder_of_a_log(tmp_path: Path, value: str, missing: str) -> None:
    host = planted(tmp_path, {"/own/x": ""}, {"NCCL_DEBUG_FILE": value})
    assert log_folder_missing(host) == missing


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ('<graphs><graph id="0"><channel><gpu dev="0"/><gpu dev="3"/></channel></graph>', 4),
        ('<graphs version="1"><net dev="7"/><gpu  dev="1" />', 2),
        ("<graphs/>", 0),
        ("nonsense", 0),
    ],
)
def test_of_how_many_gpus_a_graph_speaks(tmp_path: Path, text: str, gpus: int) -> None:
    host = planted(tmp_path, {"graph.xml": text}, {"NCCL_GRAPH_FILE": "/graph.xml"})
    assert graph_gpus(host) == gpus


def test_a_graph_that_is_not_there_speaks_of_none(tmp_path: Path) -> None:
    assert graph_gpus(planted(tmp_path, {}, {"NCCL_GRAPH_FILE": "/graph.xml"})) == 0
    assert graph_gpus(planted(tmp_path, {}, {})) == 0
