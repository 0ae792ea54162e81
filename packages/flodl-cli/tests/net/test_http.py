import errno
import json

import httpx
import pytest

from flodl_cli.errors import DownloadError
from flodl_cli.net.http import Fetcher, digest_of, forget, open_client, origin_note

BODY = bytes(range(256)) * 40


@pytest.fixture
def waits():
    return []


@pytest.fixture
def fetch(server, tmp_path, waits):
    server.files["/a.zip"] = BODY

    def run(path="/a.zip", **options):
        with open_client() as client:
            fetcher = Fetcher(client, sleep=waits.append, **options)
            return fetcher.fetch(server.url + path, tmp_path / "d" / "a.part")

    return run


def test_file_arrives_whole_with_its_digest(fetch, server, tmp_path):
    fetched = fetch()
    assert fetched.path.read_bytes() == BODY
    assert fetched.size_bytes == len(BODY)
    assert fetched.sha256 == digest_of(fetched.path)
    assert {*(tmp_path / "d").iterdir()} == {fetched.path, origin_note(fetched.path)}
    assert server.seen[0][1]["User-Agent"].startswith("flodl-cli/")


def test_size_and_progress_are_told(fetch):
    sizes, steps = [], []
    fetch(on_size=sizes.append, on_progress=lambda done, total: steps.append((done, total)))
    assert sizes == [len(BODY)]
    assert steps[-1] == (len(BODY), len(BODY))


def test_cut_connection_resumes_where_it_broke_off(fetch, server, waits):
    server.cut = [1000, 500]
    assert fetch().path.read_bytes() == BODY
    assert waits == [1, 2]
    asked = [headers.get("Range") for _, headers in server.seen]
    assert asked == [None, "bytes=1000-", "bytes=1500-"]


def test_interrupted_fetch_leaves_a_part_that_the_next_call_completes(fetch, server, tmp_path):
    part = tmp_path / "d" / "a.part"

    def stop(done, total):
        raise KeyboardInterrupt

    server.cut = [1000]
    with pytest.raises(KeyboardInterrupt):
        fetch(on_progress=stop)
    assert part.stat().st_size == 1000
    assert json.loads(origin_note(part).read_text())["etag"] == '"one"'
    assert fetch().path.read_bytes() == BODY
    assert server.seen[-1][1]["Range"] == "bytes=1000-"


def test_server_without_ranges_starts_again(fetch, server):
    server.cut, server.ranges = [1000], False
    assert fetch().path.read_bytes() == BODY


def test_file_that_changed_meanwhile_starts_again(fetch, server):
    server.cut = [1000]
    with pytest.raises(KeyboardInterrupt):
        fetch(on_progress=lambda done, total: (_ for _ in ()).throw(KeyboardInterrupt))
    server.files["/a.zip"], server.etags["/a.zip"] = BODY[::-1], '"two"'
    assert fetch().path.read_bytes() == BODY[::-1]


@pytest.mark.parametrize("tag", ["", 'W/"one"'])
def test_file_without_a_strong_tag_is_never_resumed(fetch, server, tag):
    server.etags["/a.zip"] = tag
    server.cut = [1000]
    assert fetch().path.read_bytes() == BODY
    assert "Range" not in server.seen[-1][1]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_server_is_asked_again(fetch, server, waits, status):
    server.answers = [status, status]
    assert fetch().path.read_bytes() == BODY
    assert waits == [1, 2]


def test_five_failures_are_the_end(fetch, server, waits):
    server.answers = [503] * 9
    with pytest.raises(DownloadError, match="the server answers 503") as failed:
        fetch()
    assert waits == [1, 2, 4, 8]
    assert "same command again" in failed.value.hint


def test_missing_file_is_not_published_and_not_asked_for_again(fetch, waits):
    with pytest.raises(DownloadError, match="is not published") as failed:
        fetch("/gone.zip")
    assert (failed.value.status, waits) == (403, [])


def test_other_refusals_name_the_answer(fetch, server):
    server.answers = [401]
    with pytest.raises(DownloadError, match="401 Unauthorized"):
        fetch()


def test_digest_header_is_handed_on(fetch, server):
    server.headers["x-amz-meta-checksum-sha256"] = "AB12"
    assert fetch().told_sha256 == "ab12"


def test_proxy_is_used(server, tmp_path, waits):
    server.files["/a.zip"] = BODY
    with open_client(server.url) as client:
        Fetcher(client).fetch("http://nowhere.invalid/a.zip", tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == BODY


def test_proxy_of_the_environment_is_used(server, tmp_path, monkeypatch):
    server.files["/a.zip"] = BODY
    monkeypatch.setenv("http_proxy", server.url)
    with open_client() as client:
        Fetcher(client).fetch("http://nowhere.invalid/a.zip", tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == BODY


def test_proxy_that_is_none_is_an_error():
    with pytest.raises(DownloadError, match="proxy 'ftp://x' cannot be used"):
        open_client("ftp://x")


def test_nobody_listening_is_an_error(tmp_path, waits):
    with open_client() as client, pytest.raises(DownloadError, match="5 times in a row"):
        Fetcher(client, sleep=waits.append).fetch("http://127.0.0.1:1/a", tmp_path / "a.part")


@pytest.mark.parametrize("url", ["nonsense/a.zip", "ftp://x/a", "http://[::bad/a", "http://a..b/"])
def test_address_that_is_none_is_not_tried_again(tmp_path, waits, url):
    with open_client() as client, pytest.raises(DownloadError, match="cannot be fetched") as failed:
        Fetcher(client, sleep=waits.append).fetch(url, tmp_path / "a.part")
    assert waits == []
    assert "--mirror" in failed.value.hint


def test_redirects_in_a_circle_are_not_tried_again(fetch, server, waits):
    server.headers["Location"] = "/a.zip"
    server.answers = [302] * 99
    with pytest.raises(DownloadError, match="maximum allowed redirects"):
        fetch()
    assert waits == []


def test_damaged_note_starts_again(fetch, server, tmp_path):
    part = tmp_path / "d" / "a.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 100)
    origin_note(part).write_text("{")
    assert fetch().path.read_bytes() == BODY


def test_longer_part_than_the_file_starts_again(fetch, server, tmp_path):
    part = tmp_path / "d" / "a.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * (len(BODY) + 10))
    origin_note(part).write_text(
        json.dumps({"url": f"{server.url}/a.zip", "etag": '"one"', "total": 5, "told_sha256": None})
    )
    assert fetch().path.read_bytes() == BODY


def test_complete_part_is_not_fetched_again(fetch, server, tmp_path):
    server.headers["x-amz-meta-checksum-sha256"] = "ab"

    def stop(done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(on_progress=stop)
    fetched = fetch()
    assert (fetched.path.read_bytes(), fetched.told_sha256) == (BODY, "ab")
    assert fetch() == fetched
    assert len(server.seen) == 1
    forget(fetched.path)
    assert [*(tmp_path / "d").iterdir()] == []
    assert fetch() == fetched
    assert len(server.seen) == 2


def test_full_disk_is_the_callers_error_and_keeps_the_part(fetch, monkeypatch):
    def full(done, total):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fetch(on_progress=full)


def test_client_gives_up_on_silence():
    with open_client() as client:
        assert client.timeout == httpx.Timeout(30.0)
