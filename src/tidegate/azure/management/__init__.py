"""Azure's management API (Azure Resource Manager) for unmodified clients, and the local endpoint where they log in.

Requests are taken apart in `routes`, answered in `resource_manager` by a table of operations, and the operations come
from resource providers: `event_hubs` is Microsoft.EventHub. Subscriptions, resource groups and tags lie above them.
"""

from tidegate.azure.management.access.principals import Principal, PrincipalError, Principals
from tidegate.azure.management.access.requests import PrincipalRole
from tidegate.azure.management.routes import ArmSettings, ManagementApi, arm_routes

__all__ = ["ArmSettings", "ManagementApi", "Principal", "PrincipalError", "PrincipalRole", "Principals", "arm_routes"]
