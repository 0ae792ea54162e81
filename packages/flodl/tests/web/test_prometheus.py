import sys

import pytest


def values(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.rsplit(" ", 1) for line in lines)


def test_prometheus_reads_metrics_ranks_devices_and_alerts(portal):
    pytest.importorskip("prometheus_client")
    tree = portal.board.tree
    tree.alert("rank_lost", "root/host-1/rank3", "gone")
    tree.set_alive("root/host-1/rank3", alive=False)
    response = portal.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    found = values(response.text)
    loss = tree.current("root")["metrics"]["loss"]
    assert float(found['flodl_metric{key="loss",path="root"}']) == pytest.approx(loss)
    assert found['flodl_ranks{state="alive"}'] == "3.0"
    assert found['flodl_ranks{state="lost"}'] == "1.0"
    assert found["flodl_epoch"] == "3.0"
    assert 0 < float(found['flodl_gpu_util_ratio{path="root"}']) < 1
    assert found['flodl_alerts_total{class="rank_lost"}'] == "1.0"
    assert found['flodl_dropped_total{where="streams"}'] == "0.0"
    assert float(found['flodl_vram_bytes{kind="total",path="root/host-0/rank0"}']) > 1e9


def test_without_its_library_the_answer_names_the_command(portal, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    response = portal.get("/metrics")
    assert response.status_code == 501
    assert "flodl[prometheus]" in response.json()["error"]["message"]
