"""A streaming job as clients describe it, in the API's own terms: what is kept beside the job file made of it.

Parts are lists of `{"name": …, "properties": …}`. Secrets in them are the service's to encrypt; what readers get has
None in their place, which is left out of answers.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from tidegate.azure.management.access.requests import bad_request
from tidegate.service.secrets import is_secret

PART_KINDS = ("inputs", "outputs", "functions")
MOST_PARTS = 60
"""Inputs, and outputs, of one job: the service's own limit."""
DEFAULT_TRANSFORMATION = "Transformation"
DEFAULT_UNITS = 1
_PART_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_WHERE = re.compile(
    r"namespace|account|server|host|endpoint|url|uri|authority|tenant|user|policyname|broker|appname", re.IGNORECASE
)
"""Members that say to whom a secret is shown."""


def is_described(document: Mapping[str, Any]) -> bool:
    """Return whether a job is described in the API's terms; otherwise its job file is all there is."""
    return "properties" in document


def parts_of(document: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the inputs, outputs or functions of a job."""
    return list(document.get(kind, ()))


def part_named(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any] | None:
    """Return one of them by its name in any case, None if there is none."""
    return next((part for part in parts_of(document, kind) if part["name"].lower() == name.lower()), None)


def with_part(document: Mapping[str, Any], kind: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a part added, or in place of the one of its name. Raises ArmError."""
    if not _PART_NAME.fullmatch(part["name"]):
        raise bad_request(
            f"the name {part['name'][:100]!r} of one of the {kind}: 1 to 128 letters, digits, '-' or '_'", target=kind
        )
    parts = parts_of(document, kind)
    names = [other["name"].lower() for other in parts]
    if part["name"].lower() in names:
        parts[names.index(part["name"].lower())] = dict(part)
    else:
        parts.append(dict(part))
    if len(parts) > MOST_PARTS:
        raise bad_request(f"a job has at most {MOST_PARTS} {kind}", target=kind)
    return {**document, kind: parts}


def without_part(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    """Return the document without a part."""
    return {**document, kind: [part for part in parts_of(document, kind) if part["name"].lower() != name.lower()]}


def read_part(kind: str, name: str, body: Any, former: Mapping[str, Any] | None, *, is_patch: bool) -> dict[str, Any]:
    """Return a part as it is to be kept.

    Args:
        kind: inputs, outputs or functions.
        name: Its name in the path.
        body: What the client sent.
        former: The part as it is, with its secrets; None if it is new.
        is_patch: Whether what is left out remains.

    Raises:
        ArmError: It is not a part.
    """
    given = _object(body, kind)
    properties = _object(given.get("properties", {}), f"{kind}.{name}.properties")
    properties = {key: value for key, value in properties.items() if key not in ("etag", "diagnostics")}
    if former is not None:
        properties = (
            _merged(former["properties"], properties)
            if is_patch
            else _keeping_secrets(former["properties"], properties)
        )
    if kind != "functions":
        datasource = properties.get("datasource")
        if not isinstance(datasource, dict) or not isinstance(datasource.get("type"), str):
            raise bad_request(f"properties.datasource of '{name}' has no type", target=f"{kind}.{name}")
        if not isinstance(datasource.get("properties", {}), dict):
            raise bad_request(f"properties.datasource.properties of '{name}' is no object", target=f"{kind}.{name}")
    if kind == "inputs" and str(properties.get("type", "")).lower() not in ("stream", "reference"):
        raise bad_request(f"properties.type of '{name}' is Stream or Reference", target=f"{kind}.{name}")
    return {"name": name if former is None else former["name"], "properties": properties}


def read_parts(kind: str, given: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the parts that a job's own body contains. Raises ArmError."""
    if not isinstance(given, list):
        raise bad_request(f"properties.{kind} is a list", target=kind)
    changed = {**document, kind: []}
    for one in given:
        part = _object(one, kind)
        name = part.get("name")
        if not isinstance(name, str):
            raise bad_request(f"one of the {kind} has no name", target=kind)
        changed = with_part(
            changed, kind, read_part(kind, name, part, part_named(document, kind, name), is_patch=False)
        )
    return changed


def read_transformation(name: str, body: Any, former: Mapping[str, Any], *, is_patch: bool) -> dict[str, Any]:
    """Return a transformation as it is to be kept. Raises ArmError."""
    properties = _object(_object(body, "transformation").get("properties", {}), "transformation.properties")
    properties = {key: value for key, value in properties.items() if key in ("query", "streamingUnits")}
    if is_patch:
        properties = {**former.get("properties", {}), **properties}
    query, units = properties.get("query"), properties.get("streamingUnits")
    if query is not None and not isinstance(query, str):
        raise bad_request("transformation.properties.query is text", target="transformation")
    if units is not None and (isinstance(units, bool) or not isinstance(units, int)):
        raise bad_request("transformation.properties.streamingUnits is a whole number", target="transformation")
    return {"name": name, "properties": properties}


def shown(part: Any) -> Any:
    """Return a part as readers see it: without secrets."""
    if isinstance(part, Mapping):
        return {
            key: shown(value)
            for key, value in part.items()
            if value is not None and not (is_secret(key) and isinstance(value, str))
        }
    return [shown(value) for value in part] if isinstance(part, list) else part


def etag_of_part(part: Mapping[str, Any]) -> str:
    """Return what identifies a version of a part."""
    text = json.dumps(shown(part), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{what}: an object is expected", "InvalidRequestContent", target=what)
    return copy.deepcopy(value)


def _merged(former: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object changed by another as JSON merge patch does it (RFC 7396), but null leaves a member alone."""
    merged = dict(former)
    for key, value in changes.items():
        if value is None:
            continue
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    if _places(former) != _places(merged):
        # a secret is for the place that it was given for
        return {key: value for key, value in merged.items() if not is_secret(key) or changes.get(key) is not None}
    return merged


def _keeping_secrets(former: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client gives, with the former secrets where it gives none: it cannot have read them."""
    kept = dict(given)
    if _places(former) == _places(given):
        kept |= {key: value for key, value in former.items() if is_secret(key) and given.get(key) is None}
    for key, value in given.items():
        before = former.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and given.get("type") == former.get("type"):
            kept[key] = _keeping_secrets(before, value)
        elif isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
            kept[key] = [
                _keeping_secrets(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
                for old, new in zip(before, value, strict=True)
            ]
    return kept


def _places(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that say where secrets are shown, by their names as written: those of any case are read."""
    return {
        key: value for key, value in part.items() if _WHERE.search(key) and not is_secret(key) and value is not None
    }
