"""JSON as a format: bodies as they arrive, compressed or transcoded ones, and files of JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.decoded import Decoded, Problem, Wanted
from tidegate.engine.decoding.formats import FORMATS, BodyDecoder, Format, FormatKind, Unreadable
from tidegate.engine.decoding.json_bodies import Decoder
from tidegate.engine.decoding.limits import BatchBudget
from tidegate.engine.decoding.table_decoder import problems_of
from tidegate.engine.decoding.tables import TableBodies

_TRAILING_COMMA = re.compile(rb",\s*\]\s*\Z")
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


@FORMATS.register
class JsonFormat(FormatKind):
    """Objects, arrays of them, or lines of either; see `json_bodies`."""

    name = "json"
    is_text = True

    def decoder(self, wanted: Wanted, format_: Format) -> BodyDecoder:
        decoder = Decoder(wanted, format_.limits)
        return _UnpackedDecoder(decoder, format_) if format_.is_packed else decoder

    def file_rows(self, content: bytes, format_: Format) -> Sequence[bytes]:
        """Return the texts in a JSON file: the elements of an array, one object, or the values on separate lines."""
        stripped = content.strip()
        if stripped[:1] == b"[":
            try:
                return list(map(bytes, _decode_raws(_TRAILING_COMMA.sub(b"]", stripped))))
            except (msgspec.DecodeError, RecursionError):
                pass
        lines = [line for line in (line.strip() for line in stripped.split(b"\n")) if line]
        if len(lines) > 1 and lines[0] == b"{":
            try:
                _check_json(stripped)
                return [stripped]
            except (msgspec.DecodeError, RecursionError):
                pass
        texts: list[bytes] = []
        for line in lines:
            if line[:1] == b"[":
                try:
                    texts += map(bytes, _decode_raws(line))
                    continue
                except (msgspec.DecodeError, RecursionError):
                    pass
            texts.append(line)
        return texts


class _UnpackedDecoder:
    """JSON that is compressed, or in another encoding."""

    def __init__(self, decoder: Decoder, format_: Format) -> None:
        self._decoder = decoder
        self._format = format_

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):  # a file that could not be read
            return _with_rejections(self._decoder.decode([]), problems_of(bodies.rows()))
        texts: list[bytes] = []
        places: list[int] = []
        rejected: list[tuple[int, Problem]] = []
        budget = BatchBudget()
        for event, body in enumerate(bodies):
            try:
                texts.append(content_of(body, self._format))
                places.append(event)
                budget.add(event, size=len(texts[-1]))
            except Unreadable as error:
                rejected.append((event, error.problem))
        decoded = self._decoder.decode(texts)
        where = np.array(places, dtype=np.int64)
        rejected += zip(
            where[decoded.rejected_events].tolist(), map(Problem, decoded.rejected_problems.tolist()), strict=True
        )
        return _with_rejections(replace(decoded, events=where[decoded.events]), sorted(rejected))


def _with_rejections(decoded: Decoded, rejected: Sequence[tuple[int, Problem]]) -> Decoded:
    return replace(
        decoded,
        rejected_events=np.array([event for event, _ in rejected], dtype=np.int64),
        rejected_problems=np.array([int(problem) for _, problem in rejected], dtype=np.int64),
    )
