"""Templates of Azure Resource Manager: their expressions, and the resources that a template means."""

from tidegate.arm_templates.errors import TemplateError, UnknownValueError
from tidegate.arm_templates.evaluation import Evaluator, Runtime, Scope
from tidegate.arm_templates.template import DEPLOYMENTS, Template, TemplateResource

__all__ = [
    "DEPLOYMENTS",
    "Evaluator",
    "Runtime",
    "Scope",
    "Template",
    "TemplateError",
    "TemplateResource",
    "UnknownValueError",
]
