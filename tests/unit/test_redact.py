"""redact: no password, token or key gets through, and what is harmless stays readable."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from preflight.domains.settings.variables import known_variables
from preflight.model import Cause, Mark, Missing, Seen
from preflight.packed import Packing
from preflight.redact import command_line, redact, secret, secrets, without
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
        "DB_PASS",
        "DB_PWD",
        "KEY_PASSPHRASE",
        "NPM_AUTH",
        "GITHUB_PAT",
        "SENTRY_DSN",
        "SLACK_WEBHOOK_URL",
        "SESSION_COOKIE",
        "HTTP_AUTHORIZATION",
        "AZURE_STORAGE_CONNECTION_STRING",
        "SSHPASS",
        "LDAP_BIND_PW",
        "ADMINPW",
        "AZURE_STORAGE_SAS",
        "DB_CREDS",
        "SESSIONID",
    ],
)
def test_secret_names(name: str) -> None:
    assert secret(name)
    assert redact(name, "hunter2") == "***"


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_IB_PKEY",
        "UCX_IB_PKEY",
        "TOKENIZERS_PARALLELISM",
        "RANK",
        "NCCL_SOCKET_IFNAME",
        "PWD",
        "OLDPWD",
    ]
    + ["PATH", "LD_LIBRARY_PATH", "XAUTHORITY", "COMPASS", "NCCL_BYPASS", "I_MPI_PIN"]
    + [name for name in known_variables() if name != "PREFLIGHT_TOKEN"],
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
        ("--passphrase=abc", "--passphrase=***"),
        ("--pwd=abc PWD=/tmp", "--pwd=*** PWD=/tmp"),
        ("--tokenizer=gpt2", "--tokenizer=gpt2"),
        ("Authorization: Basic dTpw", "Authorization: ***"),
        ("GET / X-Api-Key: abc def", "GET / X-Api-Key: ***"),
        ("curl failed with Bearer abcdefgh1234", "curl failed with Bearer ***"),
        ("KeyError: 'layer.0'", "KeyError: 'layer.0'"),
        ("authored: by me", "authored: by me"),
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


@pytest.mark.parametrize(
    "value",
    ["://", "a-", "key", "token=", "aaaa:", "@", "login a ", "mysql ", "-u a:", '"key":"\\'],
)
def test_hostile_values_cost_nothing(value: str) -> None:
    began = time.process_time()
    redact("X", value * (1 << 19))
    assert time.process_time() - began < 1.0


ONE = "Pl4nted9XyZabcQwErTy0123456"
FORMS = {
    "a connection string": f"Server=h; Uid=u; Pwd={ONE};",
    "one with blanks": f"Server=h; Password = {ONE}; x=1",
    "of a storage account": f"AccountName=a;AccountKey={ONE}==;EndpointSuffix=x",
    "a shared access signature": f"https://a.blob/c?sv=2020&sp=r&sig={ONE}%3D",
    "a database without a user": f"redis://:{ONE}@h:6379/0",
    "of GitLab": f"glpat-{ONE[:20]}",
    "of Google": f"AIza{ONE}01234567",
    "of OAuth": f"ya29.{ONE}",
    "of SendGrid": f"SG.{ONE}.{ONE}",
    "of npm": f"npm_{ONE}0123456789",
    "of PyPI": f"pypi-AgEIcHlwaS5vcmc{ONE}",
    "of DigitalOcean": f"dop_v1_{ONE}",
    "of NVIDIA": f"nvapi-{ONE}",
    "of Replicate": f"r8_{ONE}",
    "of Stripe": f"sk_live_{ONE}",
    "of Vault": f"hvs.{ONE}",
    "of Slack": f"xapp-1-{ONE}",
    "of a .netrc": f"machine api.wandb.ai login user password {ONE}",
    "of one with lines": f"machine h\n login u\n password {ONE}\n",
    "a header of Digest": f'Authorization: Digest username="u", response="{ONE}"',
    "a header in JSON": f'{{"Authorization": "Bearer {ONE}"}}',
    "a header by itself": f"Basic {ONE}QQ==",
    "JSON": f'{{"token": "{ONE}", "a": 1}}',
    "repr()": f"{{'api_key': '{ONE}'}}",
    "YAML": f"password: {ONE}",
    "an error": f"bad token: {ONE}",
    "a PEM": f"-----BEGIN PRIVATE KEY-----\nMIIE{ONE}\n{ONE}AA\n-----END PRIVATE KEY-----",
    "a PEM in one line": f"-----BEGIN EC PRIVATE KEY-----\\nMI{ONE}\\n-----END EC PRIVATE KEY-----",
    "a PEM that was cut": f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{ONE}",
    "an account of Google": f'{{"private_key_id": "{ONE}", "private_key": "-----BEGIN {ONE}"}}',
    "a webhook of Slack": f"https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/{ONE}",
    "a webhook of Discord": f"https://discord.com/api/webhooks/123456789/{ONE}",
    "a bot of Telegram": f"https://api.telegram.org/bot123456789:{ONE}abcdefg/send",
    "a code of OAuth": f"https://h/?code={ONE}&x=1",
    "mysql": f"mysql -u root -p{ONE}",
    "sshpass": f"sshpass -p {ONE} ssh h",
    "curl": f"curl -u me:{ONE} https://h",
    "an option": f"prog --token {ONE} x",
    "one in quotes": f"prog --password='a {ONE} b'",
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_secret_by_its_form_is_in_no_text(form: str) -> None:
    value = FORMS[form]
    assert ONE[:20] not in redact("X", value, 4000)
    assert ONE[:20] not in " ".join(command_line(["sh", "-c", value]))
    assert ONE[:20] not in without(f"error: {value} !", secrets({"X": value}))


@pytest.mark.parametrize(
    "value",
    [
        "docker run -u 1000:1000 -p 8080:80",
        "ValueError: tokens: 12 of 13",
        "RuntimeError: invalid token: unexpected end",
        "KeyError: 'layer.0'",
        "basic configuration of the machine",
        "key = self.k_proj(x)",
        "mysqldump -p db",
        "login node7",
        "npm_config_user_agent",
        "exit code=3",
        "-----BEGIN CERTIFICATE-----",
        "/opt/tokenizers/bin:/usr/bin/basic",
        "--tokenizer gpt2 --lr 0.1",
    ],
)
def test_what_only_sounds_like_one_stays(value: str) -> None:
    assert redact("X", value) == value
    assert secrets({"X": value}) == ()


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hunter2", "wrong password: hunter2"),
        ("a/b+c=d", "GET /?x=a%2Fb%2Bc%3Dd"),
        ("long\tsecret", "ValueError('long\\tsecret')"),
        ("-----BEGIN\nMIIEvQIBADANBg\n-----END", "bad line MIIEvQIBADANBg"),
        ("0123456789abcdef", "text that was cut: 0123456789ab…"),
        ("0123456789abcdef", "text that was cut: 0123456789ab"),
    ],
)
def test_a_secret_by_name_stands_nowhere(value: str, text: str) -> None:
    hidden = secrets({"MY_TOKEN": value})
    assert value in hidden
    shown = without(text, hidden)
    assert "***" in shown
    assert not any(part in shown for part in (value, "MIIE", "01234567", "%2F", "tsecret"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_TOKEN", "true"),
        ("MASTER_KEY", "123456789"),
        ("SECRET_LEVEL", "standard"),
        ("SSL_KEY_FILE", "/dev/shm/key-1"),
        ("AUTH", ""),
    ],
)
def test_what_is_a_word_like_others_spoils_no_report(name: str, value: str) -> None:
    assert secrets({name: value}) == ()


def test_secrets_of_a_command_line_are_not_shown() -> None:
    words = ["x.py", "--api-key", "abc", "--hf-token=abc", "--lr", "0.1", "hf_" + "a" * 30, "k"]
    shown = ["x.py", "--api-key", "***", "--hf-token=***", "--lr", "0.1", "***", "k"]
    assert command_line(words) == shown
    words = ["x", "--passphrase=abc", "-p", "abc", "--pwd", "abc", "-u", "me:abc", "-u", "me"]
    shown = ["x", "--passphrase=***", "-p", "***", "--pwd", "***", "-u", "***", "-u", "me"]
    assert command_line(words) == shown
    words = ["curl", "--header", "Authorization: abc", "-H", "X-Auth-Token: abc", "-p", "29500"]
    shown = ["curl", "--header", "Authorization: ***", "-H", "X-Auth-Token: ***", "-p", "29500"]
    assert command_line(words) == shown
    assert command_line([]) == []


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


def test_what_holds_no_secret_stays_the_same_object() -> None:
    """Of ten thousand nodes most are alike: a report in which each had a copy would not fit."""
    common, spoilt = {"a": ["x", 1, 2.0, None]}, ["password-1"]
    seen = {"n1": Seen(common), "n2": Seen(common), "n3": Seen({"b": spoilt, "c": spoilt})}
    made = without(seen, ("password-1", "password-2"))
    assert made["n1"] is seen["n1"]
    assert made["n2"].value is common
    assert made["n3"].value == {"b": ["***"], "c": ["***"]}
    assert made["n3"].value["b"] is made["n3"].value["c"]
    assert without(seen, ("password-2",)) is seen


def test_an_environment_without_secrets_costs_nothing() -> None:
    environ = {f"X{n}": "x" * 500 for n in range(5000)}
    began = time.process_time()
    assert secrets(environ) == ()
    assert time.process_time() - began < 0.5


def test_words_of_a_command_line_are_hidden_wherever_they_stand() -> None:
    words = ["train.py", "--api-key", "Sesame-1", "-p", "Sesame-2", "-u", "me:Sesame-3"]
    words += ["--header", "Authorization: Basic Sesame-4", "--pass=Sesame-5", "-p", "29500"]
    said = without(f"no such option in {words!r}; Sesame-3 alone", secrets({}, words))
    assert "Sesame" not in said
    assert "29500" in said
    assert "train.py" in said


@pytest.mark.slow
def test_to_look_for_secrets_takes_no_memory_for_each_node() -> None:
    """Where nothing is hidden nothing is kept of it: a host has a hundred thousand observations."""
    packing = Packing()
    seen = {
        f"n{n}": Seen(packing.of({"host": f"n{n}", "limits": [1, 2]}), 0.5 + n)
        for n in range(30_000)
    }
    tracemalloc.start()
    try:
        assert without(seen, ("secret-of-a-user",)) is seen
        assert tracemalloc.get_traced_memory()[1] < 60 * len(seen)
    finally:
        tracemalloc.stop()


def test_what_many_have_in_common_stays_one_among_many_others() -> None:
    same = Seen({"said": "secret-of-a-user"})
    own = {f"n{n}": Seen({"number": n}) for n in range(10_000)}
    found = without({"first": same, **own, "last": same}, ("secret-of-a-user",))
    assert found["first"] is found["last"]
    assert found["first"] == Seen({"said": "***"})
    assert all(found[name] is one for name, one in own.items())
