from flodl.device.host import HostProbe


def cgroup(root, **files):
    folder = root / "sys/fs/cgroup"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def test_load_is_a_share_of_the_containers_quota(tmp_path):
    now = [10.0]
    cgroup(tmp_path, cpu_max="200000 100000\n", cpu_stat="usage_usec 1000000\nuser_usec 5\n")
    probe = HostProbe(tmp_path, clock=lambda: now[0])
    now[0] = 12.0
    cgroup(tmp_path, cpu_stat="usage_usec 3000000\n")
    assert probe.cpu_percent() == 50.0
    assert probe.cpu_count <= 2


def test_memory_is_that_of_the_container_without_droppable_pages(tmp_path):
    cgroup(
        tmp_path,
        memory_max="1000000\n",
        memory_current="700000\n",
        memory_stat="anon 5\ninactive_file 200000\n",
    )
    assert HostProbe(tmp_path).memory() == (500000, 1000000)


def test_without_limits_the_machine_counts(tmp_path):
    cgroup(tmp_path, cpu_max="max 100000\n", memory_max="max\n")
    probe = HostProbe(tmp_path)
    used, total = probe.memory()
    assert 0 < used < total
    assert probe.cpu_count >= 1
    assert probe.cpu_percent() >= 0.0
