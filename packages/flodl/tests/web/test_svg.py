import pytest

from flodl.web.svg import SvgError, safe_svg

NS = 'xmlns="http://www.w3.org/2000/svg"'


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<g onclick="alert(1)"/>',
        "<foreignObject><b/></foreignObject>",
        '<image href="http://evil/x.png"/>',
        '<use href="http://evil/x.svg#a"/>',
        '<a href="javascript:alert(1)"><text>x</text></a>',
        '<rect style="fill:url(http://evil)"/>',
        '<rect fill="url(http://evil/#x)"/>',
        '<animate onbegin="alert(1)"/>',
        "<style>@import url(http://evil)</style>",
        '<g xmlns:x="http://www.w3.org/1999/xhtml"><x:script>alert(1)</x:script></g>',
    ],
)
def test_whatever_acts_or_reaches_out_is_dropped(inside):
    cleaned = safe_svg(f"<svg {NS}>{inside}</svg>")
    for bad in ("script", "alert", "evil", "onclick", "foreign", "href", "style", "onbegin"):
        assert bad not in cleaned


def test_drawing_stays():
    drawing = (
        f'<svg {NS} viewBox="0 0 1 1"><defs><marker id="m" /></defs>'
        '<path d="M0 0" marker-end="url(#m)" /><text x="1">a &lt; b</text></svg>'
    )
    assert safe_svg(drawing) == drawing.replace("'", '"')


def test_a_graphviz_head_is_taken():
    head = (
        '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n'
        '<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://x/svg11.dtd">\n'
        "<!-- Generated -->\n"
    )
    assert safe_svg(f"{head}<svg {NS}><g /></svg>") == f"<svg {NS}><g /></svg>"


def test_entities_are_refused_before_they_are_read():
    bomb = f'<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg {NS}><text>&a;</text></svg>'
    with pytest.raises(SvgError, match="document type"):
        safe_svg(bomb)


@pytest.mark.parametrize("text", ["", "<svg", "<html/>", "hello"])
def test_what_is_no_picture_is_refused(text):
    with pytest.raises(SvgError):
        safe_svg(text)
