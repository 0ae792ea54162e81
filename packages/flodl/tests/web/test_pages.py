import re

from flodl.web.page_files import page_files


def test_the_page_names_its_files_by_digest_and_holds_no_run_data(reading):
    response = reading.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "<!--csp-->" not in response.text
    assert "<!--data-->" not in response.text
    assert "fake resnet" not in response.text
    links = re.findall(r'(?:src|href)="(static/[^"]+)"', response.text)
    assert links
    for link in links:
        file = reading.get(f"/{link}")
        assert file.status_code == 200, link
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_modules_find_each_other_below_the_digest(reading):
    prefix = f"/static/{page_files().digest}"
    app = reading.get(f"{prefix}/app.js")
    assert app.headers["content-type"].startswith("text/javascript")
    for name in re.findall(r'from "\./([\w.]+)"', app.text):
        assert reading.get(f"{prefix}/{name}").status_code == 200


def test_another_digest_or_name_is_not_found(reading):
    digest = page_files().digest
    for path in (
        f"/static/{digest}/nope.js",
        "/static/0000/app.js",
        "/static/app.js",
        f"/static/{digest}/README.md",
        f"/static/{digest}/%2e%2e%2fapp.py",
    ):
        assert reading.get(path).status_code == 404


def test_a_browser_gets_a_session_of_its_own_once(serve):
    portal = serve()
    cookie = portal.get("/").headers["set-cookie"]
    assert f"flodl_browser_{portal.server.port}=" in cookie
    assert "HttpOnly" in cookie
    assert "set-cookie" not in portal.get("/").headers
