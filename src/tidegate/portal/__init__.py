"""The portal: web pages to look at event hubs and jobs and to work with them, served by the hub's own HTTP port.

Pages are rendered on the server. Every page is also available as JSON, at its path with `.json` appended.
"""

from tidegate.portal.application import portal

__all__ = ["portal"]
