"""The wrapped model on some ranks only."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module
from preflight.domains.script.wrapped_rules import wrapped_under_rank

HEAD = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


RESNET = "import torchvision\nnet = torchvision.models.resnet50()\nmodel = DDP(net)\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel\nmodel = {}\n".format(
    "FullyShardedDataParallel(net)"
)
ONLY = (
    "def only(func):\n  def inner(*args):\n    if rank == 0:\n      return func(*args)\n"
    "  return inner\n"
)
LOOP = "def val(m):\n  m(x)\nfor epoch in range(3):\n"
PREPARED = (
    "import accelerate, torchvision\naccelerator = accelerate.Accelerator()\n"
    "model, opt = accelerator.prepare(torchvision.models.resnet18(), opt)\n"
)
ENGINE = "import deepspeed\nengine, opt, _, _ = deepspeed.initialize(model=net)\n"
BUFFER = (
    "class B(torch.nn.Module):\n  def __init__(self):\n    if {test}: "
    "self.register_buffer('{name}', torch.ones(1))\n"
)
HF = "from transformers import {name}\nmodel = DDP({name}.from_pretrained('a'))\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (RESNET + "if int(os.environ['RANK']) == 0:\n  y = model(x)\n", 1),
        (RESNET + "def val(m, d):\n  return m(d)\nif dist.get_rank() == 0:\n  val(model, d)\n", 1),
        (RESNET + "def val(d, net=None):\n  net(d)\nif rank == 0:\n  val(d, net=model)\n", 1),
        (RESNET + "if rank == 0:\n  y = model.module(x)\n", 0),
        (RESNET + "if rank == 0:\n  torch.save(model.state_dict(), 'a')\n", 0),
        (RESNET + "if rank == 0:\n  y = model(x)\nelse:\n  model(z)\n", 0),
        (RESNET + "if epoch == 0:\n  y = model(x)\n", 0),
        (RESNET + "if rank == 0 or args.all:\n  y = model(x)\n", 0),
        (RESNET + "def val(m, d):\n  m = m.module\n  m(d)\nif rank == 0:\n  val(model, d)\n", 0),
        ("model = DDP(transformer)\nif rank == 0:\n  y = model(x)\n", 0),
        (
            RESNET.replace("DDP(net)", "DDP(net, broadcast_buffers=False)")
            + "if rank == 0:\n  model(x)\n",
            0,
        ),
        (FSDP + "if rank == 0:\n  sd = model.state_dict()\n", 1),
        (FSDP + "if not rank:\n  out = model(x)\n", 1),
        (FSDP + "sd = model.state_dict()\nif rank == 0:\n  torch.save(sd, 'a')\n", 0),
        (
            FSDP + "with t(model, StateDictType.LOCAL_STATE_DICT):\n  pass\n"
            "if rank == 0:\n  model.state_dict()\n",
            0,
        ),
        (FSDP + "if rank == 0:\n  model.generate(x)\n", 1),
        (FSDP + "def save(m, rank):\n  if rank == 0:\n    m.state_dict()\nsave(model, rank)\n", 1),
        # the others have returned
        (
            RESNET + "def show(m, rank):\n  if rank != 0:\n    return\n  m(x)\nshow(model, rank)\n",
            1,
        ),
        (
            RESNET + "def show(m, rank):\n  if m is None:\n    return\n  m(x)\nshow(model, rank)\n",
            0,
        ),
        (RESNET + "def show(m, rank):\n  if rank:\n    return\n  m(x)\nshow(model.module, 0)\n", 0),
        # by two functions, a global, a decorator
        (
            RESNET + "def one(n):\n  n(x)\ndef two(m):\n  one(m)\nif rank == 0:\n  two(model)\n",
            1,
        ),
        (RESNET + "def val():\n  model(x)\nif rank == 0:\n  val()\n", 1),
        (
            "from lightning_utilities import rank_zero_only\n"
            + RESNET
            + "@rank_zero_only\ndef val(m):\n  m(x)\nval(model)\n",
            1,
        ),
        (ONLY + RESNET + "@only\ndef val(m):\n  m(x)\nval(model)\n", 1),
        (
            ONLY.replace("rank == 0", "verbose")
            + RESNET
            + "@only\ndef val(m):\n  m(x)\nval(model)\n",
            0,
        ),
        # all train after it: its broadcast meets the one in the forward of the others
        (RESNET + LOOP + "  if rank == 0:\n    val(model)\n  model(x).backward()\n", 0),
        (
            RESNET
            + LOOP
            + "  if rank == 0:\n    val(model)\n  dist.barrier()\n  model(x).backward()\n",
            1,
        ),
        (RESNET + LOOP + "  model(x).backward()\n  if rank == 0:\n    val(model)\n", 1),
        # what is prepared by a library
        (PREPARED + "if accelerator.is_main_process:\n  model(x)\n", 1),
        (PREPARED + "if accelerator.is_main_process:\n  accelerator.unwrap_model(model)(x)\n", 0),
        (ENGINE + "if rank == 0:\n  engine.save_checkpoint('a')\n", 1),
        (ENGINE + "if rank == 0:\n  other.save_checkpoint('a')\n", 0),
        (ENGINE + "engine.save_checkpoint('a')\n", 0),
        ("import ignite\n" + RESNET + "if rank == 0:\n  model(x)\n", 0),
        # buffers that a model may have
        (
            BUFFER.format(test="True", name="big")
            + "model = DDP(B())\nif rank == 0:\n  model(x)\n",
            0,
        ),
        (
            BUFFER.format(test="True", name="big").replace("if True: ", "")
            + "model = DDP(B())\nif rank == 0:\n  model(x)\n",
            1,
        ),
        (HF.format(name="BertModel") + "if rank == 0:\n  model(x)\n", 1),
        (HF.format(name="T5Model") + "if rank == 0:\n  model(x)\n", 0),
        (HF.format(name="BertTokenizer") + "if rank == 0:\n  model(x)\n", 0),
    ],
)
def test_the_wrapped_model_is_for_all(text: str, count: int) -> None:
    made = program(text)
    assert len(list(wrapped_under_rank(made, mentions(made.modules)))) == count


GIVEN = (
    "import torchvision\nclass T:\n  def __init__(self, net, rank):\n    self.net = net\n"
    "    self.gpu = rank\n  def fit(self):\n    if self.gpu == 0:\n      self.test()\n"
    "  def test(self):\n    self.net(x)\n"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (GIVEN + "T(DDP(torchvision.models.resnet18()), rank).fit()\n", 1),
        (GIVEN + "T(torchvision.models.resnet18(), rank).fit()\n", 0),
        (GIVEN + "net = DDP(torchvision.models.resnet18())\nT(net, rank).fit()\n", 1),
        (GIVEN + "net = DDP(torchvision.models.resnet18())\nT(net.module, rank).fit()\n", 0),
        # bound twice: who knows which
        (
            GIVEN.replace("self.gpu = rank", "self.gpu = rank\n    self.gpu = size")
            + "T(DDP(torchvision.models.resnet18()), rank).fit()\n",
            0,
        ),
    ],
)
def test_a_model_is_followed_into_an_object(text: str, count: int) -> None:
    made = program(text)
    assert len(list(wrapped_under_rank(made, mentions(made.modules)))) == count


OBJECT = (
    "import torchvision\nclass E:\n  def __init__(self, net):\n    self.net = net\n"
    "  def run(self):\n    self.net(x)\n"
    "  def __call__(self, m):\n    if rank == 0:\n      m(x)\n"
    "net = DDP(torchvision.models.resnet18())\n"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("e = E(net)\nif rank == 0:\n  e.run()\n", 1),
        ("e = E(net.module)\nif rank == 0:\n  e.run()\n", 0),
        ("e = E(other)\ne(net)\n", 1),
        ("e = E(other)\ne(net.module)\n", 0),
        # another object's attribute of the same name
        (
            "class T:\n  def __init__(self):\n    self.net = net\n  def fit(self):\n"
            "    e = E(plain)\n    if rank == 0:\n      e.run()\n",
            0,
        ),
    ],
)
def test_a_model_is_followed_through_an_object(text: str, count: int) -> None:
    made = program(OBJECT + text)
    assert len(list(wrapped_under_rank(made, mentions(made.modules)))) == count


NETS = "import torchvision\nnets = {'g': torchvision.models.resnet50(), 'd': other}\n"
EACH = NETS + "for name in nets:\n  nets[name] = DDP(nets[name], device_ids=[gpu])\n"
USE = "if rank == 0:\n  y = nets['g'](x)\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (NETS + "nets['g'] = DDP(nets['g'])\n" + USE, 1),
        ("import torchvision\nnets = {'g': DDP(torchvision.models.resnet18())}\n" + USE, 1),
        (EACH + USE, 1),
        (EACH.replace("name in nets:", "name, net in nets.items():") + USE, 1),
        (NETS + "nets = {k: DDP(m) for k, m in nets.items()}\n" + USE, 1),
        # under a test that asks whether there are other ranks
        (NETS + "if args.distributed:\n  nets['g'] = DDP(nets['g'])\n" + USE, 1),
        (EACH + "def val(n, x):\n  n['g'](x)\nif rank == 0:\n  val(nets, x)\n", 1),
        (EACH + "def val(n, x):\n  n(x)\nif rank == 0:\n  val(nets['g'], x)\n", 1),
        (EACH + "def show():\n  net = nets['g']\n  net(x)\nif rank == 0:\n  show()\n", 1),
        (
            "import torchvision\nclass T:\n  def __init__(self):\n    self.nets = {}\n"
            "    self.nets['g'] = DDP(torchvision.models.resnet18())\n"
            "  def fit(self):\n    if rank == 0:\n      self.nets['g'](x)\n",
            1,
        ),
        # another one of the dict, which is not wrapped
        (NETS + "nets['d'] = DDP(nets['d'])\n" + USE, 0),
        (NETS + USE, 0),
        (EACH + USE.replace("['g']", "['g'].module"), 0),
        (EACH + "raw = {k: m.module for k, m in nets.items()}\n" + USE.replace("nets", "raw"), 0),
        (EACH + "nets['g'] = nets['g'].module\n" + USE, 0),
        (EACH + USE + "else:\n  nets['g'](z)\n", 0),
        (EACH + USE.replace("rank == 0", "epoch == 0"), 0),
        # only some of them are wrapped, by a test that asks for their names
        (
            NETS + "for name in nets:\n  if name != 'g':\n    nets[name] = DDP(nets[name])\n" + USE,
            0,
        ),
        (NETS + "nets = {k: DDP(m) for k, m in nets.items() if k != 'g'}\n" + USE, 0),
        # a function of a dict, and a list
        (NETS + "nets['g'] = DDP(nets['g'])\nif rank == 0:\n  hooks['g'](x)\n", 0),
        (NETS + "nets[0] = DDP(nets[0])\nif rank == 0:\n  nets[0](x)\n", 0),
    ],
)
def test_a_model_in_a_dict(text: str, count: int) -> None:
    found = program(text)
    hits = list(wrapped_under_rank(found, mentions(found.modules)))
    assert len(hits) == count
    assert all("DDP under 'if rank == 0'" in hit.other for hit in hits)
