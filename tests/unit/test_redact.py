"""redact: no password, token or key gets through, and what is harmless stays readable."""

from __future__ import annotations

import time

import pytest

from preflight.model import Cause, Mark, Missing, Seen
from preflight.redact import redact, secret, secrets, without
from preflight.sanitize import LIMIT


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "APPKEY",
        "PGPASSWORD",
        "aws_session_token",
        "MY_PRIVATE_KEY_FILE",
        "DB_PASSWD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSHKEY",
    ],
)
def test_secret_names(name: str) -> None:
    assert secret(name)
    assert redact(name, "hunter2") == "***"


@pytest.mark.parametrize(
    "name",
    ["NCCL_IB_PKEY", "UCX_IB_PKEY", "TOKENIZERS_PARALLELISM", "RANK", "NCCL_SOCKET_IFNAME", "PWD"],
)
def test_harmless_names(name: str) -> None:
    assert not secret(name)
    assert redact(name, "0x8001") == "0x8001"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://proxy.corp:3128", "http://proxy.corp:3128"),
        ("http://ann:pw@proxy.corp:3128", "http://***@proxy.corp:3128"),
        ("http://ann:p@w/x@proxy.corp:3128", "http://***@proxy.corp:3128"),
        ("http://ann@proxy.corp", "http://***@proxy.corp"),
        ("ann:pw@proxy.corp:3128", "***@proxy.corp:3128"),
        ("http://a:b@h1,http://c:d@h2", "http://***@h2"),
        ("setup@10.0.0.1", "setup@10.0.0.1"),
        ("10.0.0.1@o2ib:/lustre", "10.0.0.1@o2ib:/lustre"),
        ("https://h/x?access_token=abc&y=1", "https://h/x?access_token=***&y=1"),
        ("--password=abc --rank=1", "--password=*** --rank=1"),
        ("hf_abcdefghijklmnopqrstuvwx", "***"),
        ("[::1]:29500", "[::1]:29500"),
        ("mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1"),
        ("", ""),
    ],
)
def test_values(value: str, shown: str) -> None:
    assert redact("X", value) == shown


def test_a_cut_leaves_no_half_password() -> None:
    assert "secret" not in redact("http_proxy", f"http://u:secret{'x' * 20_000}@proxy:3128")


def test_bounded() -> None:
    assert len(redact("X", "a" * 5000)) == LIMIT
    assert redact("X", "a" * 5000).endswith("…")


def test_any_bytes_can_be_written() -> None:
    assert redact("X", "a\udcff\r") == "a\\udcff\r"
    redact("X", "\ud800" * 1000).encode()


@pytest.mark.parametrize("value", ["://", "a-", "key", "token=", "aaaa:", "@"])
def test_hostile_values_cost_nothing(value: str) -> None:
    began = time.perf_counter()
    redact("X", value * (1 << 19))
    assert time.perf_counter() - began < 1.0


# --- secrets that may stand anywhere in a report ---


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("http://user:long-password@proxy:3128", ("user:long-password", "long-password")),
        ("user:long-password@host", ("user:long-password", "long-password")),
        ("https://long-token@host/path", ("long-token",)),
        ("a=b token=long-token&x=y", ("long-token",)),
        ("--api-key=long-value", ("long-value",)),
        ("hf_0123456789abcdefgh", ("hf_0123456789abcdefgh",)),
        ("http://u:vm@proxy", ()),
        ("token=true", ()),
        ("gpu-b07.cluster:29500", ()),
        ("/opt/python@3.11/bin:/usr/bin", ()),
        ("/usr/bin:/opt/python@3.11/bin", ()),
        ("", ()),
    ],
)
def test_what_is_secret_by_its_form(value: str, found: tuple[str, ...]) -> None:
    assert secrets({"X": value}) == found


def test_the_longest_is_hidden_first() -> None:
    hidden = secrets({"A": "key=longer-than-the-other", "B": "key=longer-than"})
    assert hidden == ("longer-than-the-other", "longer-than")
    assert without("longer-than-the-other", hidden) == "***"


def test_hidden_wherever_it_stands() -> None:
    hidden = ("password-1",)
    seen = Seen(
        {"a": ["x password-1 y", 3, None], "password-1": True}, 0.1, (Mark("password-1", 1),)
    )
    missing = Missing(Cause.CRASHED, "at password-1", by="host.cpu")
    assert without((seen, missing), hidden) == (
        Seen({"a": ["x *** y", 3, None], "***": True}, 0.1, (Mark("***", 1),)),
        Missing(Cause.CRASHED, "at ***", by="host.cpu"),
    )
    assert without(Cause.CRASHED, ("crashed",)) is Cause.CRASHED
    assert without(seen, ()) is seen


def test_an_environment_without_secrets_costs_nothing() -> None:
    environ = {f"X{n}": "x" * 500 for n in range(5000)}
    began = time.perf_counter()
    assert secrets(environ) == ()
    assert time.perf_counter() - began < 0.5
