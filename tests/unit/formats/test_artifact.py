"""Artifacts inside modules: what goes in comes out, damage is an ArchiveError, sources wait."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from fakes.plans import dynamic_plan, static_plan
from fakes.small_models import mlp
from tilewright.base.errors import ArchiveError
from tilewright.formats.artifact import (
    MANIFEST_ATTRIBUTE,
    Artifact,
    CarriedModule,
    Variant,
    embed,
    extract,
    is_artifact,
    leading_rodata,
    read_needs,
)
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import (
    ModuleBuilder,
    ModuleDef,
    Rodata,
    archive_bytes,
    read_archive,
)
from tilewright.runtime.bytecode_machine import BytecodeMachine

SOURCES = {"graph": "graph main", "kernel/add": "for i in range(4): …"}


def variant(target: str, *features: str) -> Variant:
    return Variant(
        target=target,
        arch="x86_64",
        features=frozenset(features),
        format="embedded-elf-x86_64",
        image=target.encode() * 40,
        plan=static_plan(),
        constants=(0,),
    )


def artifact(sources: dict[str, str] | None = None) -> Artifact:
    return Artifact(
        variants=(variant("v2", "sse2"), variant("v3", "sse2", "avx2")),
        constants=(bytes(range(16)),),
        sources=SOURCES if sources is None else sources,
    )


def module_of(made: Artifact, *more: bytes) -> ModuleDef:
    module = ModuleBuilder("module").finish()
    rodata = (*leading_rodata(made), *(Rodata(data=data) for data in more))
    return embed(made, replace(module, rodata=rodata))


def with_manifest(module: ModuleDef, **changes: Any) -> ModuleDef:
    manifest = json.loads(module.attributes[MANIFEST_ATTRIBUTE]) | changes
    return replace(module, attributes={MANIFEST_ATTRIBUTE: json.dumps(manifest)})


def test_an_artifact_comes_back_from_the_bytes_of_an_archive() -> None:
    made = artifact()
    again = extract(read_archive(archive_bytes(module_of(made, b"text")), "m.vmfb"))
    assert [v.target for v in again.variants] == ["v2", "v3"]
    assert [v.features for v in again.variants] == [v.features for v in made.variants]
    assert [bytes(v.image) for v in again.variants] == [v.image for v in made.variants]
    assert [v.plan for v in again.variants] == [static_plan()] * 2
    assert [bytes(c) for c in again.constants] == list(made.constants)
    assert again.producer == made.producer
    assert dict(again.sources) == SOURCES
    assert len(again.sources) == 2


def two_packings() -> Artifact:
    """The first constant is the first variant's, the second one both could read."""
    first, second = artifact().variants
    own = (replace(first, constants=(0,)), replace(second, constants=(1,)))
    return replace(artifact(), variants=own, constants=(bytes(16), bytes(range(20))))


def test_variants_may_have_constants_of_their_own() -> None:
    made = two_packings()
    again = extract(read_archive(archive_bytes(module_of(made)), "m.vmfb"))
    first, second = again.variants
    assert [bytes(c) for c in again.constants_of(first)] == [made.constants[0]]
    assert [bytes(c) for c in again.constants_of(second)] == [made.constants[1]]
    assert (again.own_bytes(first), again.own_bytes(second)) == (16, 20)
    shared = extract(module_of(artifact()))
    assert [shared.own_bytes(v) for v in shared.variants] == [0, 0]


def test_archives_without_constants_of_their_own_stay_as_they_were() -> None:
    def version(made: Artifact) -> object:
        return json.loads(module_of(made).attributes[MANIFEST_ATTRIBUTE])["version"]

    assert version(artifact()) == [1, 0]
    assert version(replace(artifact(), modules=(CarriedModule("one", b""),))) == [1, 1]
    assert version(two_packings()) == [1, 2]


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([2], "2 is no place of one of 2 constants"),
        ([-1], "-1 is no place of one of 2 constants"),
        ([True], "True is no place of one of 2 constants"),
        (["0"], "'0' is no place of one of 2 constants"),
        (None, "malformed manifest"),
        (0, "malformed manifest"),
        ([[0]], "[0] is no place of one of 2 constants"),
        ([], "0 constants, the plan needs 1"),
        ([0, 1], "2 constants, the plan needs 1"),
    ],
)
def test_places_of_constants_that_are_not_there_are_refused(
    places: object, message: str
) -> None:
    module = module_of(two_packings())
    rows = json.loads(module.attributes[MANIFEST_ATTRIBUTE])["variants"]
    rows[1]["constants"] = places
    with pytest.raises(ArchiveError) as caught:
        extract(with_manifest(module, variants=rows), "m.vmfb")
    assert str(caught.value).startswith("m.vmfb: ")
    assert message in str(caught.value)


def test_modules_travel_with_their_kind() -> None:
    modules = (CarriedModule("one", b"first"), CarriedModule("two", b""))
    made = replace(artifact(), modules=modules)
    again = extract(read_archive(archive_bytes(module_of(made)), "m.vmfb"))
    assert [(m.kind, bytes(m.data)) for m in again.modules] == [
        ("one", b"first"),
        ("two", b""),
    ]
    assert extract(module_of(artifact())).modules == ()


def test_the_same_artifact_gives_the_same_bytes() -> None:
    assert archive_bytes(module_of(artifact())) == archive_bytes(module_of(artifact()))


def test_sources_may_be_left_out() -> None:
    module = module_of(artifact({}))
    assert dict(extract(module).sources) == {}
    assert len(module.rodata) == 3 + 2


def test_a_module_without_a_manifest_is_no_artifact() -> None:
    module = ModuleBuilder("other").finish()
    assert not is_artifact(module)
    assert is_artifact(module_of(artifact()))
    with pytest.raises(
        ArchiveError, match=r"other\.vmfb: no Tilewright manifest"
    ) as caught:
        extract(module, "other.vmfb")
    assert "virtual machine" in (caught.value.hint or "")


def test_a_module_needs_the_segments_that_its_bytecode_uses() -> None:
    with pytest.raises(ArchiveError, match="lacks the artifact's rodata"):
        embed(artifact(), ModuleBuilder("module").finish())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": [2, 0]}, "manifest version 2.0, this is tilewright"),
        ({"version": [1, 9]}, "manifest version 1.9, this is tilewright"),
        ({"version": []}, "malformed manifest"),
        ({"version": ["1", "0"]}, "malformed manifest"),
        ({"constants": [99]}, "manifest names rodata segment 99"),
        ({"constants": [-1]}, "manifest names rodata segment -1"),
        ({"constants": [True]}, "manifest names rodata segment True"),
        ({"constants": []}, "0 constants, the plan needs 1"),
        ({"constants": [2, 2]}, "2 constants, the plan needs 1"),
        ({"constants": 5}, "malformed manifest"),
        ({"variants": []}, "manifest lists no variant"),
        ({"variants": [{}]}, "malformed manifest"),
        ({"variants": [3]}, "malformed manifest"),
        ({"sources": 99}, "manifest names rodata segment 99"),
        ({"sources": None}, "manifest names rodata segment None"),
        ({"modules": 3}, "malformed manifest"),
        ({"modules": [{"kind": "a"}]}, "malformed manifest"),
        ({"modules": [{"kind": "a", "rodata": 99, "crc32": 0}]}, "names rodata segment 99"),
        ({"modules": [{"kind": "", "rodata": 0, "crc32": 0}]}, "'' is no kind of modules"),
        ({"modules": [{"kind": 3, "rodata": 0, "crc32": 0}]}, "3 is no kind of modules"),
        ({"modules": [{"kind": "a", "rodata": 0, "crc32": 0}]}, "kind 'a' is damaged"),
    ],
)
def test_a_damaged_manifest_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        extract(with_manifest(module_of(artifact()), **changes), "m.vmfb")
    assert str(caught.value).startswith("m.vmfb: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("version", "is_newer"), [([0, 3], False), ([1, 9], True), ([2, 0], True)]
)
def test_an_update_is_advised_for_newer_manifests_alone(
    version: list[int], is_newer: bool
) -> None:
    with pytest.raises(ArchiveError) as caught:
        extract(with_manifest(module_of(artifact()), version=version))
    hint = "compile the model again with this version"
    assert caught.value.hint == (f"update Tilewright, or {hint}" if is_newer else hint)


def test_what_code_needs_is_read_without_any_plan() -> None:
    module = embed(artifact(), module_of(artifact()))
    v2, v3 = read_needs(with_manifest(module, constants=[], sources=99))
    assert (v2.target, v2.arch, v2.features) == ("v2", "x86_64", {"sse2"})
    assert (v3.target, v3.features) == ("v3", {"sse2", "avx2"})
    assert read_needs(with_manifest(module, variants=[])) == ()
    for damage in ({"variants": [{}]}, {"variants": [3]}, {"variants": 3}, {"version": []}):
        with pytest.raises(ArchiveError, match="m: malformed manifest"):
            read_needs(with_manifest(module, **damage), "m")
    with pytest.raises(ArchiveError, match="which reads up to"):
        read_needs(with_manifest(module, version=[2, 0]))
    with pytest.raises(ArchiveError, match="no Tilewright manifest"):
        read_needs(ModuleDef(name="m"))


def test_a_plan_of_another_model_is_refused() -> None:
    odd = replace(variant("v2"), plan=dynamic_plan())
    with pytest.raises(ArchiveError, match="1 constants, the plan needs 0"):
        extract(module_of(replace(artifact(), variants=(odd,))))


def test_constants_that_are_too_short_are_refused() -> None:
    with pytest.raises(ArchiveError, match="constant 'w' has 15 bytes, expected 16"):
        extract(module_of(replace(artifact(), constants=(bytes(15),))))


def test_damaged_sources_matter_only_to_who_reads_them() -> None:
    module = module_of(artifact())
    for bad in (
        b"",
        b"garbage",
        zlib.compress(b"not json"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"a":'),
    ):
        damaged = replace(module, rodata=(*module.rodata[:-1], Rodata(data=bad)))
        found = extract(damaged, "m.vmfb")
        assert found.variants[0].plan == static_plan()
        with pytest.raises(ArchiveError, match=r"m\.vmfb: sources are corrupt"):
            dict(found.sources)


@given(st.data())
def test_damaged_manifest_text_is_refused_or_harmless(data: st.DataObject) -> None:
    module = module_of(artifact())
    text = module.attributes[MANIFEST_ATTRIBUTE]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    text = (
        text[:start] + data.draw(st.text(alphabet='{}[]",:0123x-', max_size=8)) + text[end:]
    )
    try:
        found = extract(replace(module, attributes={MANIFEST_ATTRIBUTE: text}))
    except ArchiveError:
        return
    assert found.variants


@pytest.mark.slow
def test_every_byte_of_a_small_archive_may_be_wrong() -> None:
    """Flip every byte: reading and extracting gives an artifact or an ArchiveError."""
    data = bytearray(archive_bytes(module_of(artifact())))
    refused = 0
    for position in range(len(data)):
        data[position] ^= 0xFF
        try:
            extract(read_archive(bytes(data), "m.vmfb"))
        except ArchiveError:
            refused += 1
        data[position] ^= 0xFF
    assert refused > 1000


def test_damaged_code_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(mlp(3), jobs=1).save(path)
    data = bytearray(path.read_bytes())
    image = bytes(view_bytes(extract(read_archive(bytes(data))).variants[0].image))
    data[data.index(image) + len(image) // 2] ^= 1
    path.write_bytes(data)
    for engine in ("plan", "vm"):
        with pytest.raises(ArchiveError, match="is damaged") as caught:
            tw.load(path, engine=engine)
        assert str(path) in str(caught.value)
    with pytest.raises(ArchiveError, match="is damaged"):
        BytecodeMachine.from_file(path)


def test_archives_from_before_there_was_a_checksum_load(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(mlp(3), jobs=1).save(path)
    module = read_archive(path.read_bytes())
    text = re.sub(r'"crc32":\d+,', "", module.attributes[MANIFEST_ATTRIBUTE])
    assert text != module.attributes[MANIFEST_ATTRIBUTE]
    old = replace(module, attributes={**module.attributes, MANIFEST_ATTRIBUTE: text})
    assert len(extract(old).variants) == 1
