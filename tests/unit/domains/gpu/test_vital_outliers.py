"""Which GPUs and trays are unlike their peers; two alone never are. The findings are in
tests/checks/test_gpu_health.py."""

from __future__ import annotations

from preflight.domains.gpu.vital_outliers import (
    Nodes,
    corrected_floods,
    hot_memory,
    other_domains,
    other_vbios,
    place_name,
)
from preflight.domains.gpu.vitals import VGPU, NvSwitchFabric, Vitals

OLD, NEW = "96.00.61.00.01", "96.00.74.00.01"


def box(*versions: str, **changes: int) -> list[Vitals]:
    return [Vitals(i, name="H100", vbios=v, **changes) for i, v in enumerate(versions)]


def tray(cluster: str, *cliques: int) -> list[Vitals]:
    joined = [NvSwitchFabric(3, cluster=cluster, clique=c) for c in cliques]
    return [Vitals(i, name="GB200", fabric=fabric) for i, fabric in enumerate(joined)]


def places(found: object) -> list[list[str]]:
    return [[place_name(p) for p in one.places] for one in found]  # type: ignore[attr-defined]


def test_a_node_of_one_gpu_is_a_party_as_one_of_eight() -> None:
    nodes: Nodes = {"n1": box(*[NEW] * 8), "n2": box(OLD), "n3": box(OLD)}
    assert places(other_vbios(nodes)) == [["n1"]]


def test_in_a_mixed_node_gpus_are_the_parties() -> None:
    nodes: Nodes = {"n1": box(NEW, NEW, OLD, NEW), "n2": box(*[NEW] * 4)}
    assert places(other_vbios(nodes)) == [["n1 GPU 2"]]


def test_a_virtual_gpu_has_what_its_host_gives() -> None:
    assert places(other_vbios({"n1": box(NEW, NEW, OLD, NEW, virtual=VGPU)})) == []


def test_a_flood_is_measured_by_the_others_of_its_model() -> None:
    gpus = [Vitals(i, name="H100", corrected=n) for i, n in enumerate((4, 48_211, 0, 9))]
    assert [(gpu.index, usual) for gpu, usual in corrected_floods(gpus)] == [(1, 4)]
    assert [*corrected_floods([*gpus[:2], Vitals(2, name="T400", corrected=0)])] == []
    assert [*corrected_floods([Vitals(i, name="H100") for i in range(4)])] == []


def test_hot_memory_is_measured_by_the_others_of_its_model() -> None:
    gpus = [Vitals(i, name="H200", memory_temperature=t) for i, t in enumerate((62, 101, 58, 61))]
    assert [(gpu.index, usual) for gpu, usual in hot_memory(gpus)] == [(1, 61)]
    assert [*hot_memory(gpus[:2])] == []  # of two, either may be the odd one
    busy = [Vitals(i, name="H200", memory_temperature=t) for i, t in enumerate((96, 90, 89, 95))]
    assert [*hot_memory(busy)] == []


def test_memory_with_a_limit_is_measured_by_that() -> None:
    gpus = [
        Vitals(i, name="H200", memory_temperature=t, memory_max=105)
        for i, t in enumerate((62, 101, 58, 61))
    ]
    assert [*hot_memory(gpus)] == []


def test_racks_and_partitions_of_several_trays_are_on_purpose() -> None:
    racks: Nodes = {f"n{i}": tray("ab" if i < 5 else "cd", 1, 1) for i in range(8)}
    partitions: Nodes = {f"n{i}": tray("ab", 1 + (i > 4), 1 + (i > 4)) for i in range(8)}
    assert places(other_domains(racks)) == places(other_domains(partitions)) == []


def test_one_tray_beside_the_others_is_named_unless_they_fill_a_rack() -> None:
    for others, named in ((17, [["last"]]), (18, [])):
        nodes = {f"n{i}": tray("ab", 1, 1) for i in range(others)} | {"last": tray("cd", 1, 1)}
        assert places(other_domains(nodes)) == named


def test_a_fabric_that_is_not_up_says_nothing_of_domains() -> None:
    late = [Vitals(0, name="GB200", fabric=NvSwitchFabric(2))]
    failed = [Vitals(0, name="GB200", fabric=NvSwitchFabric(3, 999))]
    nodes: Nodes = {"n1": tray("ab", 1), "n2": tray("ab", 1), "n3": late, "n4": failed}
    assert places(other_domains(nodes)) == []
