"""Templates of Azure Resource Manager: their expressions, and the resources that a template means."""

from tidegate.azure.templates.evaluation import EvaluationScope, Evaluator, Runtime
from tidegate.azure.templates.expressions import TemplateError, UnknownValueError
from tidegate.azure.templates.template import DEPLOYMENTS, Template, TemplateResource

__all__ = [
    "DEPLOYMENTS",
    "EvaluationScope",
    "Evaluator",
    "Runtime",
    "Template",
    "TemplateError",
    "TemplateResource",
    "UnknownValueError",
]
