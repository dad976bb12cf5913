"""Contexts check dependencies, bind imports, run `__init`, and keep states apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.base.errors import ArchiveError, DeviceError
from tilewright.base.status import StatusCode
from tilewright.formats.vmfb import ModuleBuilder, ModuleDef
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule
from tilewright.runtime.vm.ref import Instance


def host(*signatures: str, version: int = 0) -> NativeModule:
    rows = [NativeFunction("call", (s,), lambda *_: None) for s in signatures]
    return NativeModule("host", rows, version=version)


def importing(name: str, convention: str, *, optional: bool = False) -> ModuleDef:
    module = ModuleBuilder("m")
    module.import_(name, convention, optional=optional)
    module.function("0v_v", export="f").return_()
    return module.finish()


def load(definition: ModuleDef, *others: NativeModule) -> Context:
    return Context([*others, BytecodeModule(definition, Instance())])


def counter() -> ModuleDef:
    """`__init` sets a global to 10, `next` counts it up."""
    module = ModuleBuilder("counter")
    place = module.global_word("i64")
    begin = module.function("0v_v", export="__init")
    begin.emit("global.store.i64", place, begin.constant("i64", 10))
    begin.return_()
    build = module.function("0v_I", export="next")
    value = build.emit("global.load.i64", place)
    build.emit(
        "global.store.i64", place, build.emit("add.i64", value, build.constant("i64", 1))
    )
    build.return_(value)
    return module.finish()


def test_init_runs_before_the_first_call() -> None:
    context = load(counter())
    assert [context.lookup("counter.next")() for _ in range(2)] == [10, 11]


def test_a_module_tells_what_its_maker_wrote_into_it() -> None:
    module = BytecodeModule(replace(counter(), attributes={"maker": "me"}), Instance())
    assert module.attributes == {"maker": "me"}
    assert host().attributes == {}


def test_a_fork_has_a_state_of_its_own() -> None:
    context = load(counter())
    context.lookup("counter.next")()
    other = context.fork()
    assert other.lookup("counter.next")() == 10
    assert context.lookup("counter.next")() == 11


def test_a_missing_module_is_named_with_the_import() -> None:
    with pytest.raises(DeviceError, match=r"module 'm': import 'host.call': module 'host'"):
        load(importing("host.call", "0i_v"))


def test_a_missing_function_is_named() -> None:
    with pytest.raises(DeviceError, match=r"import 'host.other' 0v_v: no such function"):
        load(importing("host.other", "0v_v"), host("0v_v"))
    with pytest.raises(DeviceError, match=r"no such function.*\nhint: did you mean 'call'"):
        load(importing("host.cal", "0v_v"), host("0v_v"))


def test_another_signature_is_named_on_both_sides() -> None:
    with pytest.raises(
        DeviceError, match="has the signature '0I_v', the module offers '0i_v' '0v_v'"
    ):
        load(importing("host.call", "0I_v"), host("0i_v", "0v_v"))


def test_optional_imports_may_be_missing() -> None:
    without = load(importing("host.call", "0i_v", optional=True))
    assert without.lookup("m.f")() is None
    load(importing("host.other", "0i_v", optional=True), host("0i_v"))


def test_a_row_may_take_several_signatures() -> None:
    for convention in ("0i_v", "0v_v"):
        context = load(importing("host.call", convention), host("0i_v", "0v_v"))
        assert context.lookup("m.f") is not None


def test_dependencies_are_checked_with_their_versions() -> None:
    module = ModuleBuilder("m")
    module.dependency("host", 7)
    definition = module.finish()
    with pytest.raises(DeviceError, match="module 'host' is missing"):
        load(definition)
    with pytest.raises(DeviceError, match="version 6, expected at least 7"):
        load(definition, host(version=6))
    load(definition, host(version=7))


def test_a_module_whose_init_fails_is_not_registered() -> None:
    module = ModuleBuilder("m")
    build = module.function("0v_v", export="__init")
    build.fail(build.constant("i32", 5), "no device")
    context = Context()
    with pytest.raises(DeviceError, match="no device"):
        context.register(BytecodeModule(module.finish(), Instance()))
    assert context.modules == ()


def test_names_are_unique_and_frozen_contexts_take_no_more() -> None:
    context = Context([host("0v_v")])
    with pytest.raises(DeviceError, match="module 'host' already") as caught:
        context.register(host("0v_v"))
    assert caught.value.code == StatusCode.ALREADY_EXISTS
    context.freeze()
    late = BytecodeModule(counter(), Instance())
    with pytest.raises(DeviceError, match="after the freeze"):
        context.register(late)


def test_an_unknown_function_brings_the_closest() -> None:
    with pytest.raises(DeviceError, match=r"did you mean 'counter.next'"):
        load(counter()).lookup("counter.nxt")


def test_closing_runs_deinit_last_first() -> None:
    seen: list[str] = []
    row = NativeFunction("say", ("0i_v",), lambda i: seen.append(str(i)))
    context = Context([NativeModule("host", (row,))])
    for number in (1, 2):
        module = ModuleBuilder(f"m{number}")
        build = module.function("0v_v", export="__deinit")
        build.call(module.import_("host.say", "0i_v"), [build.constant("i32", number)])
        build.return_()
        context.register(BytecodeModule(module.finish(), Instance()))
    context.close()
    assert seen == ["2", "1"]
    with pytest.raises(DeviceError, match=r"no 'host.say': the context is closed"):
        context.lookup("host.say")
    with pytest.raises(DeviceError) as caught:
        Context().lookup("m.f")
    assert "known" not in str(caught.value)


def test_a_call_with_another_number_of_arguments_is_refused_with_both_numbers() -> None:
    module = ModuleBuilder("m")
    module.import_("host.call", "0i_v")
    build = module.function("0ii_i", export="f")
    build.return_(build.emit("add.i32", *build.arguments))
    definition = module.finish()
    context = Context([host("0i_v"), BytecodeModule(definition, Instance())])
    for given in ((), (1,), (1, 2, 3)):
        with pytest.raises(
            DeviceError, match=r"m\.f: got \d arguments?, expected 2"
        ) as caught:
            context.lookup("m.f")(*given)
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        with pytest.raises(DeviceError, match=r"m\.f: got \d arguments?, expected 2"):
            context.begin("m.f", *given)
    with pytest.raises(DeviceError, match=r"host\.call: got 0 arguments, expected 1"):
        context.lookup("host.call")()
    assert context.lookup("m.f")(1, 2) == 3


def test_signals_reach_modules_that_listen() -> None:
    module = ModuleBuilder("m")
    place = module.global_word("i32")
    build = module.function("0i_v", export="__notify")
    build.emit("global.store.i32", place, build.arguments[0])
    build.return_()
    read = module.function("0v_i", export="read")
    read.return_(read.emit("global.load.i32", place))
    context = load(module.finish())
    context.notify("low_memory")
    assert context.lookup("m.read")() == 2


def test_an_unknown_type_is_refused_by_name() -> None:
    module = ModuleBuilder("m")
    module.type("!future.thing")
    with pytest.raises(DeviceError, match=r"unknown type '!future.thing'"):
        load(module.finish())


def test_another_bytecode_version_is_refused_with_the_ones_that_run() -> None:
    from dataclasses import replace

    definition = replace(counter(), bytecode_version=18 << 16)
    with pytest.raises(ArchiveError, match=r"bytecode version 18.0, expected 15.0 to 17.0"):
        load(definition)
