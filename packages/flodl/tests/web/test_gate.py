import pytest


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_only_reading_is_allowed(reading, method):
    response = reading.client.request(method, "/paths")
    assert response.status_code == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3000", "10.1.2.3", "", "localhost.evil.example"]
)
def test_a_foreign_host_name_is_misdirected(reading, host):
    response = reading.get("/node", headers={"host": host})
    assert response.status_code == 421
    assert "root" not in response.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:3000", "127.0.0.1:80", "[::1]:9"])
def test_loopback_names_are_answered(reading, host):
    assert reading.get("/node", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/paths", "/nope", "/node?path=..", "/healthz"])
def test_every_answer_carries_the_safety_headers_and_none_of_cors(reading, path):
    headers = reading.get(path, headers={"origin": "http://evil.example"}).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


def test_a_long_target_is_refused(reading):
    assert reading.get("/node?path=root&x=" + "a" * 5000).status_code == 414


def test_without_a_token_nothing_but_the_shell_is_open(serve):
    portal = serve(token="s3cret")
    for path in (
        "/paths",
        "/node",
        "/history",
        "/stream",
        "/events",
        "/series",
        "/api/meta",
        "/api/history",
        "/api/alerts",
        "/snapshot",
        "/graph.svg",
        "/timeline/hosts",
        "/export.csv",
        "/export.jsonl",
        "/nope",
    ):
        response = portal.get(path)
        assert response.status_code == 401, path
        assert response.json()["error"]["code"] == "no_token"
    assert portal.get("/healthz").status_code == 200


def test_a_bearer_token_opens_and_a_query_token_does_not(serve):
    portal = serve(token="s3cret")
    assert portal.get("/paths", headers={"authorization": "Bearer s3cret"}).status_code == 200
    assert portal.get("/paths", headers={"authorization": "bearer s3cret"}).status_code == 200
    assert portal.get("/paths", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert portal.get("/paths?token=s3cret").status_code == 401


def test_logging_in_gives_a_strict_cookie_that_opens(serve):
    portal = serve(token="s3cret")
    response = portal.client.post("/login", json={"token": "s3cret"})
    assert response.status_code == 204
    cookie = response.headers["set-cookie"]
    assert {part.strip().lower() for part in cookie.split(";")[1:]} == {
        "httponly",
        "samesite=strict",
        "path=/",
    }
    assert "s3cret" not in cookie
    assert portal.get("/paths").status_code == 200


def test_a_wrong_token_is_refused_and_the_eleventh_is_not_even_looked_at(serve):
    portal = serve(token="s3cret")
    for _ in range(10):
        response = portal.client.post("/login", json={"token": "wrong"})
        assert response.status_code == 401
        assert "set-cookie" not in response.headers
    assert portal.client.post("/login", json={"token": "s3cret"}).status_code == 429
    assert portal.get("/paths", headers={"authorization": "Bearer s3cret"}).status_code == 429


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'"x"', 400),
        (b'{"token":1}', 400),
        (b"[" * 1024, 400),
        (b'{"token":' + b"[" * 1000, 400),
        (b"x" * 2000, 413),
    ],
)
def test_a_login_without_a_token_in_it_is_refused(serve, body, status):
    assert serve(token="s3cret").client.post("/login", content=body).status_code == status


def test_an_address_is_answered_where_the_server_listens_on_all(serve):
    portal = serve(host="0.0.0.0", token="s3cret")
    bearer = {"authorization": "Bearer s3cret"}
    assert portal.get("/paths", headers={**bearer, "host": "10.1.2.3:80"}).status_code == 200
    assert portal.get("/paths", headers={**bearer, "host": "evil.example"}).status_code == 421
