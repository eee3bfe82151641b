"""Whether the job is given GPUs, and what that makes of a check that has none to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.gpu.given import undecided_where_given
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable


@pytest.mark.parametrize(
    ("files", "mask", "raised"),
    [
        (("nvidia0", "nvidiactl"), None, CannotObserve),
        (("nvidia0",), "0", CannotObserve),
        (("nvidia0",), "", NotApplicable),
        (("nvidia0",), " -1", NotApplicable),
        (("nvidiactl", "nvidia-uvm"), None, NotApplicable),
        (("kfd",), None, NotApplicable),  # every kernel with the driver has it, GPU or not
        ((), None, NotApplicable),
    ],
)
def test_where_gpus_are_given_nothing_to_look_at_is_no_answer(
    tmp_path: Path, files: tuple[str, ...], mask: str | None, raised: type[Exception]
) -> None:
    (tmp_path / "dev").mkdir()
    for name in files:
        (tmp_path / "dev" / name).touch()
    host = Host(str(tmp_path), {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask})
    with pytest.raises(raised, match="torch sees no GPU here"), undecided_where_given(host):
        raise NotApplicable("torch sees no GPU here")
