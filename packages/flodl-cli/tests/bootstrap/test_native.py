"""Which build of flodl-sys is in use, and when it is built again."""


def test_compiler_that_appeared_rebuilds_the_pure_build(checkout):
    checkout.add_uv()
    checkout.run()
    checkout.add_compiler()
    result = checkout.run()
    assert "fdl: there is a C++ compiler now: building the native part" in result.stderr
    assert "--reinstall-package flodl-sys" in checkout.calls("sync")[-1]
    assert checkout.run().stderr == ""


def test_pure_build_put_in_place_of_a_native_one_is_rebuilt(checkout):
    checkout.add_uv()
    checkout.add_compiler()
    checkout.flag("uv-builds-native")
    checkout.run()
    core = checkout.root / ".venv/lib/python3.11/site-packages/flodl_sys/_core.so"
    core.unlink()
    (checkout.state / "uv-builds-native").unlink()
    assert "building the native part" in checkout.run().stderr
    assert core.exists()


def test_native_build_is_not_built_twice(checkout):
    checkout.add_uv()
    checkout.add_compiler()
    checkout.flag("uv-builds-native")
    checkout.run()
    assert len(checkout.calls("sync")) == 1
    assert checkout.run().stderr == ""


def test_native_setting_reaches_uv_and_its_change_syncs(checkout):
    checkout.add_uv()
    checkout.run(FLODL_SYS_NATIVE="0")
    assert "native=0" in checkout.calls("sync")[0]
    checkout.run(FLODL_SYS_NATIVE="0")
    assert len(checkout.calls("sync")) == 1
    checkout.run(FLODL_SYS_NATIVE="1")
    assert "native=1" in checkout.calls("sync")[1]


def test_compiler_named_by_cxx_counts(checkout):
    checkout.add_uv()
    checkout.run()
    compiler = checkout.program(checkout.bin / "my-c++", "#!/bin/sh\n")
    assert "updating" in checkout.run(CXX=f"{compiler.name} -O2").stderr
