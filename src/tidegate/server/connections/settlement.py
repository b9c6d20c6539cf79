"""Whether what a link sends is settled with its transfer, or waits to be told what became of it.

AMQP 1.0, part 2, section 2.8.2: a receiver asks for settled deliveries, for unsettled ones, or leaves it open. Who does
not ask for settled ones gets unsettled ones, as from other brokers, and may accept, release, reject or modify each or
a range. Event Hubs keeps no state of an event for a reader, whose position is its own to keep: every outcome settles
and does no more, so nothing is remembered of what was sent, and nobody can fill the hub by never answering.

Microsoft's clients for Python and JavaScript leave the mode as their AMQP library has it. The first never settles and
remembers the tags of what it has not settled; the second would send an outcome for every event that nobody reads. Both
are sent settled deliveries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.amqp import Link
from tidegate.amqp.endpoints.link import SEND_SETTLED

_PRODUCT = "product"
_INDIFFERENT_PRODUCTS = frozenset({"azsdk-python-eventhubs", "eventhub.python", "MSJSClient"})


def settle_mode(link: Link, peer_properties: Mapping[str, Any]) -> int:
    """Return the snd-settle-mode to answer the attach of a receiving peer with."""
    product = peer_properties.get(_PRODUCT)
    return SEND_SETTLED if isinstance(product, str) and product in _INDIFFERENT_PRODUCTS else link.snd_settle_mode
