"""Azure's own forms: the management API for unmodified clients, templates, and Stream Analytics projects."""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.azure.management import ArmSettings, Principal, PrincipalError, PrincipalRole, Principals, arm_routes
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["ArmSettings", "Principal", "PrincipalError", "PrincipalRole", "Principals", "arm_routes"]
