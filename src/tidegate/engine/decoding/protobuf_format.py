"""Messages of Protocol Buffers, which a deserializer reads by their description."""

from __future__ import annotations

from tidegate.engine.decoding.custom_format import CustomFormat
from tidegate.engine.decoding.formats import FORMATS


@FORMATS.register
class ProtobufFormat(CustomFormat):
    """One message is a row; a body has one, or several with their lengths before them."""

    name = "protobuf"
