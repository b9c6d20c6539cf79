"""A module has a test file of its own, or is listed here below the one that tests it through others."""

from pathlib import PurePosixPath

from tests.source import ROOT, Module, modules

# tests/FOLDER/test_MODULE.py, in the module's folder or one above it, is a test file of its own.
TESTED_THROUGH: dict[str, tuple[str, ...]] = {
    # In shards of every number, in this process (tests/job/sharded.py) and on Spark (tests/spark/equality.py).
    "tests/job/test_equality.py": ("job/runtime/emission",),
    "tests/schemas/test_evolution.py": ("schemas/schema", "schemas/schema_text"),
    "tests/hub/test_schema_registry.py": ("hub/schema_state",),
    "tests/server/test_confluent_schemas_sdk.py": ("server/http/routes/confluent_schemas", "server/http/schema_access"),
    "tests/azure/management/test_azure_schemas_sdk.py": (
        "azure/management/event_hubs/schema_groups",
        "server/http/routes/azure_schemas",
    ),
    "tests/kafka/test_messages.py": ("kafka/errors", "kafka/schemas"),
    # On a cluster that is killed, stopped and cut off.
    "tests/store/kafka/test_store.py": ("store/client/cluster",),
    "tests/store/kafka/test_check.py": ("cli/store",),
    "tests/server/kafka/test_connection.py": (
        "server/kafka/groups_api",
        "server/kafka/records_api",
        "server/kafka/session",
        "server/kafka/topics_api",
    ),
    "tests/store/kafka/test_gateway_sdk.py": ("server/kafka/forwarded_groups",),
    "tests/store/kafka/test_gateways.py": ("hub/kafka_backend", "store/kafka/shared_topic"),
    "tests/hub/test_namespace.py": ("hub/backend",),
    "tests/job/runtime/test_writers.py": ("connectors/model/encoded_rows",),
    "tests/cli/test_job_managed.py": ("cli/job/managed",),
    "tests/azure/management/test_job_file.py": ("azure/management/stream_analytics/provider",),
    "tests/service/test_jobs.py": (
        "service/errors",
        "service/record",
        "service/resource",
        "service/supervised_job",
    ),
    "tests/portal/jobs/test_workbench_client.py": ("service/questions",),
    "tests/service/test_processes.py": (
        "service/channel",
        "service/worker/process",
        "service/worker/fork_server",
        "service/worker/work",
    ),
    "tests/azure/management/test_deployments.py": ("azure/templates/process",),
    "tests/azure/templates/test_expressions.py": (
        "azure/templates/evaluation",
        "azure/templates/functions",
        "azure/templates/template",
    ),
    "tests/azure/management/test_event_hubs.py": (
        "azure/management/event_hubs/hubs",
        "azure/management/event_hubs/payloads",
        "azure/management/event_hubs/provider",
    ),
    "tests/azure/management/test_login.py": ("azure/management/access/tokens",),
    "tests/azure/management/test_principals.py": ("cli/principal",),
    "tests/azure/management/test_routes.py": (
        "azure/management/access/requests",
        "azure/management/manager/resource_manager",
    ),
    "tests/azure/management/test_stream_analytics.py": (
        "azure/management/stream_analytics/document",
        "azure/management/stream_analytics/store",
        "azure/management/stream_analytics/jobs",
        "azure/management/stream_analytics/parts",
    ),
    "tests/azure/management/test_trials.py": (
        "azure/management/stream_analytics/background",
        "azure/management/stream_analytics/engine_questions",
    ),
    "tests/azure/management/test_subscriptions.py": (
        "azure/management/manager/resource_groups",
        "azure/management/manager/state",
    ),
    "tests/workers/test_pool.py": ("workers/mirror", "workers/store"),
    "tests/workers/test_door.py": ("server/context/origin",),
    "tests/workers/test_http.py": ("server/http/handover",),
    "tests/job/functions/test_azure_ml.py": (
        "job/config/model_definitions",
        "job/functions/row_model",
    ),
    "tests/engine/functions/test_geography.py": ("engine/functions/geometries",),
    "tests/engine/test_cases.py": (
        "engine/windows/kinds/panes",
        "engine/windows/hopping_panes",
        "engine/windows/value_stretches",
        "engine/aggregates/states/state",
        "engine/aggregates/states/ordered",
        "engine/aggregates/functions/sums",
        "engine/aggregates/functions/registered",
        "engine/aggregates/functions/ordered",
    ),
    "tests/amqp/test_conversation.py": (
        "amqp/endpoints/events",
        "amqp/endpoints/handshake",
    ),
    "tests/amqp/test_frames.py": ("amqp/encoding/types",),
    "tests/amqp/test_performatives.py": ("amqp/encoding/composites",),
    "tests/blobs/test_pattern.py": (
        "blobs/object_store",
        "blobs/source",
    ),
    "tests/checkpoints/test_consumer.py": ("checkpoints/sqlite",),
    "tests/checkpoints/test_database.py": ("checkpoints/postgres",),
    "tests/checkpoints/test_sdk.py": (
        "checkpoints/aio",
        "checkpoints/store",
    ),
    "tests/cli/test_demo_spark.py": ("cli/demo",),
    "tests/cli/test_hub.py": (
        "cli/connection_string",
        "cli/hub/authorization_rule",
        "cli/hub/consumer_group",
        "cli/hub/event_hub",
        "cli/hub/namespace",
        "cli/management",
        "cli/hub/publisher",
    ),
    "tests/cli/test_job_questions.py": (
        "cli/job/questions",
        "cli/job/job_file",
        "cli/job/options",
        "cli/job/tune",
    ),
    "tests/cli/test_job_run.py": ("job/run/run_log",),
    "tests/cli/test_job_test.py": ("cli/job/test",),
    "tests/cli/test_lag.py": ("checkpoints/blob",),
    "tests/cli/test_send_tail.py": (
        "cli/send",
        "cli/tail",
    ),
    "tests/client/test_connection_string.py": ("client/hub_client",),
    "tests/engine/aggregates/test_ranges.py": ("engine/aggregates/aggregation",),
    "tests/engine/aggregates/test_states.py": ("engine/values/conversions",),
    "tests/engine/decoding/test_formats.py": (
        "engine/decoding/table_formats",
        "engine/decoding/avro",
        "engine/decoding/content",
        "engine/decoding/tables",
    ),
    "tests/engine/decoding/test_hostile.py": (
        "engine/decoding/limits",
        "engine/expressions/relations",
        "engine/expressions/checks",
        "engine/expressions/needs",
        "engine/substreams/watermarks",
        "engine/substreams/separation",
    ),
    "tests/engine/decoding/test_json_bodies.py": ("engine/decoding/decoded",),
    "tests/engine/functions/test_functions.py": (
        "engine/functions/dates",
        "engine/functions/logic",
        "engine/functions/numbers",
        "engine/functions/records",
        "sql/plan/catalog",
    ),
    "tests/engine/functions/test_patterns.py": (
        "engine/functions/like_patterns",
        "engine/functions/regular_expressions",
        "engine/functions/text",
    ),
    "tests/engine/program/test_program.py": (
        "engine/program/operators",
        "engine/program/keyed_side",
        "engine/program/partial",
        "engine/program/task_side",
    ),
    "tests/engine/stateful/test_anomalies.py": ("sql/lowering/temporal",),
    "tests/engine/stateful/test_lag.py": ("engine/stateful/analytics/earlier_rows",),
    "tests/engine/stateful/test_join_keys.py": ("engine/functions/operators",),
    "tests/engine/stateful/test_match.py": ("sql/plan/patterns",),
    "tests/engine/stateful/test_reference.py": (
        "engine/stateful/join_operator",
        "engine/stateful/match_operator",
        "engine/stateful/temporal_operator",
    ),
    "tests/engine/test_new_kinds.py": (
        "engine/program/memory",
        "engine/windows/kind",
        "sql/plan/signatures",
    ),
    "tests/engine/values/test_json_lines.py": ("engine/decoding/rows",),
    "tests/engine/windows/test_session.py": ("engine/windows/pane_tables",),
    "tests/engine/windows/test_windows.py": ("engine/windows/panes_operator",),
    "tests/hub/capture/test_partition_capture.py": ("hub/capture/journal",),
    "tests/hub/config/test_emulator_file.py": (
        "hub/config/model",
        "hub/event_hub",
        "hub/management",
        "hub/reader",
        "hub/registry",
        "hub/snapshot",
    ),
    "tests/hub/test_access.py": ("hub/access_rules",),
    "tests/hub/test_positions.py": ("hub/errors",),
    "tests/job/analysis/test_stretch_picture.py": ("job/analysis/replay_source",),
    "tests/job/config/test_schema.py": (
        "job/config/environment",
        "job/config/function_definitions",
    ),
    "tests/connectors/inputs/test_files.py": (
        "connectors/inputs/file_index",
        "connectors/inputs/file_rows",
        "connectors/inputs/file_settings",
        "connectors/inputs/kinds",
    ),
    "tests/connectors/inputs/test_kafka.py": ("connectors/model/kafka_cluster",),
    "tests/connectors/inputs/test_hub_log.py": (
        "engine/decoding/metadata",
        "connectors/inputs/event_hub",
    ),
    "tests/connectors/model/test_captured.py": (
        "connectors/model/events",
        "connectors/model/state_file",
    ),
    "tests/connectors/model/test_retry_policy.py": (
        "connectors/model/errors",
        "connectors/model/kinds",
    ),
    "tests/spark/queries/test_evaluation.py": ("spark/queries/history", "spark/queries/sampling"),
    "tests/service/test_shared_spark.py": (
        "service/worker/sharing",
        "spark/shared/attachment",
        "spark/shared/job",
    ),
    "tests/connectors/outputs/test_event_hub.py": (
        "client/producer",
        "connectors/outputs/messaging/message_rows",
    ),
    "tests/connectors/outputs/test_line_encoders.py": ("connectors/outputs/files/file_formats",),
    "tests/connectors/outputs/test_webhook.py": (
        "connectors/outputs/messaging/http_sink",
        "connectors/outputs/messaging/http_client",
        "connectors/outputs/messaging/lanes",
        "connectors/outputs/messaging/power_bi",
    ),
    "tests/connectors/outputs/test_service_bus.py": (
        "client/message_sender",
        "connectors/outputs/messaging/system_properties",
    ),
    "tests/connectors/outputs/test_files_output.py": (
        "connectors/outputs/arrow_tables",
        "connectors/outputs/files/file_location",
        "connectors/outputs/files/parts",
        "connectors/outputs/files/path_template",
    ),
    "tests/connectors/outputs/test_lake_output.py": ("connectors/outputs/tables/iceberg",),
    "tests/connectors/outputs/test_relational_table.py": (
        "connectors/outputs/tables/mysql",
        "connectors/outputs/tables/sql_server",
    ),
    "tests/connectors/outputs/test_result_file.py": (
        "connectors/outputs/column_types",
        "connectors/outputs/console",
        "connectors/outputs/kinds",
        "connectors/outputs/output",
        "connectors/outputs/tables/sqlite",
        "connectors/outputs/values",
    ),
    "tests/connectors/outputs/test_table_output.py": (
        "connectors/outputs/tables/postgresql",
        "connectors/outputs/shape",
    ),
    "tests/job/prepare/test_check.py": ("job/prepare/side_output_settings",),
    "tests/job/prepare/test_functions.py": ("job/prepare/loading",),
    "tests/azure/projects/test_cases.py": ("azure/projects/check",),
    "tests/azure/projects/datasources/test_kinds.py": (
        "azure/projects/datasources/messages",
        "azure/projects/datasources/files",
        "azure/projects/datasources/tables",
        "azure/projects/datasources/secrets",
    ),
    "tests/azure/projects/test_reading.py": (
        "azure/projects/files",
        "azure/projects/model/endpoint",
        "azure/projects/model/project_file",
    ),
    "tests/azure/projects/test_template.py": ("azure/projects/local",),
    "tests/job/run/test_prometheus.py": ("connectors/model/metrics",),
    "tests/job/run/test_run.py": (
        "job/run/commit_coordinator",
        "job/run/opening",
    ),
    "tests/job/runtime/test_carries.py": ("job/runtime/task",),
    "tests/job/runtime/test_watermark_blockers.py": (
        "job/analysis/replay",
        "job/run/status",
    ),
    "tests/job/test_kills.py": ("client/event",),
    "tests/job/testing/test_case.py": ("job/side_outputs/side_output",),
    "tests/log/test_partition_log.py": ("log/log_writer",),
    "tests/log/test_recovery.py": ("log/segment",),
    "tests/log/test_segment_reader.py": (
        "log/group",
        "log/errors",
        "log/log_reader",
        "log/retention",
        "log/segment_table",
        "log/tail_writer",
    ),
    "tests/job/analysis/test_picture.py": ("job/analysis/picture_dots",),
    "tests/ordering/test_policy.py": ("ordering/emission",),
    "tests/portal/jobs/test_pages.py": ("portal/jobs/changes",),
    "tests/portal/pages/test_event_hub.py": ("portal/pages/hubs",),
    "tests/portal/pages/test_explorer.py": (
        "portal/application",
        "portal/events/sending",
    ),
    "tests/portal/web/test_sessions.py": ("portal/pages/sign_in",),
    "tests/service/workbench/test_questions.py": (
        "service/workbench/editing",
        "service/workbench/replaying",
        "service/workbench/samples",
        "service/workbench/sections",
    ),
    "tests/sql/parsing/test_dialect.py": ("sql/parsing/diagnostics",),
    "tests/sql/parsing/test_parser.py": (
        "sql/parsing/cursor",
        "sql/parsing/expression_parser",
        "sql/parsing/match_parser",
        "sql/parsing/syntax",
    ),
    "tests/sql/plan/test_walking.py": ("sql/plan/nodes",),
    "tests/sql/test_compiler.py": ("sql/plan/units",),
    "tests/sql/test_fuzz.py": (
        "sql/lowering/context",
        "sql/lowering/doubts",
        "sql/lowering/expressions",
        "sql/lowering/groups",
        "sql/lowering/join_bounds",
        "sql/lowering/match",
        "sql/lowering/scope",
        "sql/lowering/select",
        "sql/lowering/sources",
        "sql/lowering/windows",
        "sql/plan/explain",
    ),
    "tests/server/test_access.py": (
        "server/background",
        "server/connections/link_handler",
        "server/connections/publishing",
        "server/context/context",
        "server/context/settings",
        "server/endpoint",
        "server/http/listener",
        "server/http/protocol",
        "server/http/routing",
        "server/server",
        "server/transports/transport",
    ),
    "tests/server/test_http_refusals.py": (
        "server/context/metrics",
        "server/http/refusals",
    ),
    "tests/server/test_https.py": (
        "server/http/routes/operations",
        "server/http/routes/publishing",
    ),
    "tests/spark/test_everywhere.py": ("spark/streaming/step_session",),
    "tests/spark/test_project.py": ("cli/job/run",),
    "tests/spark/test_python.py": ("spark_python",),
    "tests/spark/test_sink.py": ("spark/sink_rows",),
    "tests/spark/test_source.py": ("spark/queries/plain_errors", "spark/streaming/read_limits"),
    "tests/spark/test_questions.py": ("cli/job/verify",),
    "tests/spark/streaming/test_steps.py": ("spark/streaming/parts",),
    "tests/spark/test_stream_writer.py": (
        "spark/stream_run",
        "spark/streaming/result_tables",
    ),
    "tests/spark/test_run.py": ("spark/stages",),
}


def path_of(module: Module) -> PurePosixPath:
    """Return `amqp/encoding/codec` for that module."""
    return PurePosixPath(module.dotted.removeprefix("tidegate.").replace(".", "/"))


def has_own_test(path: PurePosixPath) -> bool:
    folders = [folder for folder in path.parents if folder != PurePosixPath(".")]
    return any((ROOT / "tests" / folder / f"test_{path.name}.py").exists() for folder in folders)


# Packages' __init__ only export; tests/test_exports.py has them.
MODULES = [
    path_of(module)
    for module in modules()
    if module.path.name not in ("__init__.py", "__main__.py") and module.package != "pyspark_tidegate"
]
LISTED = [PurePosixPath(name) for names in TESTED_THROUGH.values() for name in names]


def test_every_module_has_a_test_file_or_is_listed() -> None:
    assert not [str(path) for path in MODULES if not has_own_test(path) and path not in LISTED]


def test_no_listed_module_is_gone_or_has_a_test_file() -> None:
    assert len(LISTED) == len(set(LISTED))
    assert not [str(path) for path in LISTED if path not in MODULES or has_own_test(path)]


def test_the_tests_that_are_named_exist() -> None:
    assert not [test for test in TESTED_THROUGH if not (ROOT / test).exists()]
