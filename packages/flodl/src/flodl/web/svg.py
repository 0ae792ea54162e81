"""Pictures that users hand in, reduced to what cannot do anything."""

from __future__ import annotations

import re
from functools import lru_cache
from xml.etree import ElementTree as ET

from flodl.core.errors import ConfigError

_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset(
    "svg g defs title desc path rect circle ellipse line polyline polygon text tspan marker "
    "linearGradient radialGradient stop clipPath symbol".split()
)
_ATTRIBUTES = frozenset(
    "id class viewBox width height x y x1 y1 x2 y2 cx cy r rx ry dx dy d points transform fill "
    "fill-opacity fill-rule stroke stroke-width stroke-dasharray stroke-linecap stroke-linejoin "
    "stroke-opacity opacity font-family font-size font-weight font-style text-anchor "
    "dominant-baseline alignment-baseline marker-start marker-end marker-mid markerWidth "
    "markerHeight refX refY orient offset stop-color stop-opacity gradientUnits "
    "gradientTransform clip-path preserveAspectRatio role aria-label textLength "
    "lengthAdjust letter-spacing data-node".split()
)
_LOCAL_URL = re.compile(r"url\(\s*['\"]?#[\w.-]+['\"]?\s*\)")


class SvgError(ConfigError):
    """A text is no SVG picture that can be shown."""


@lru_cache(maxsize=32)
def safe_svg(text: str) -> str:
    """Return the picture with every element and attribute dropped that is not plain drawing.

    Raises:
        SvgError: It is not well-formed, is no SVG, or has a document type of its own.
    """
    # graphviz writes a DOCTYPE with a public identifier; an inner subset could define entities
    body = re.sub(
        r"^\s*(<\?xml[^>]*\?>)?\s*(<!--.*?-->\s*)*(<!DOCTYPE[^>\[]*>)?", "", text, flags=re.S
    )
    if "<!DOCTYPE" in body or "<!ENTITY" in body:
        raise SvgError("the picture has a document type definition, which is not shown")
    try:
        root = ET.fromstring(body)  # noqa: S314 (no DTD, so no entities)
    except ET.ParseError as error:
        raise SvgError(f"the picture is not well-formed XML: {error}") from error
    if _local_name(root.tag) != "svg":
        raise SvgError(f"the picture is a <{_local_name(root.tag)}>, not an <svg>")
    ET.register_namespace("", _SVG)
    return ET.tostring(_cleaned(root), encoding="unicode")


def _cleaned(element: ET.Element) -> ET.Element:
    made = ET.Element(f"{{{_SVG}}}{_local_name(element.tag)}")
    for name, value in element.attrib.items():
        if name in _ATTRIBUTES and _is_harmless(value):
            made.set(name, value)
    made.text, made.tail = element.text, element.tail
    for child in element:
        if _local_name(child.tag) in _ELEMENTS:
            made.append(_cleaned(child))
        elif _local_name(child.tag) == "a":
            # a link's content is drawing; the link itself goes
            made.extend(_cleaned(inner) for inner in child if _local_name(inner.tag) in _ELEMENTS)
    return made


def _local_name(tag: str) -> str:
    namespace, _, name = tag.rpartition("}")
    return name if namespace in {"", f"{{{_SVG}"} else f"foreign-{name}"


def _is_harmless(value: str) -> bool:
    lowered = _LOCAL_URL.sub("", value).casefold()
    return "url(" not in lowered and "javascript:" not in lowered and "expression(" not in lowered
