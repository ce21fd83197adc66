"""Operations of Step Functions as AWS answers them.

Where a test names a recording, its answer is AWS's as LocalStack recorded it (localstack/localstack at 8b9a79f, under
tests/aws/services/stepfunctions/v2).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from running_account import Running
from state_machines import Machines

PASS = {"Type": "Pass", "Result": {"Arg1": "argument1"}, "End": True}
DEFINITION = json.dumps({"StartAt": "State_1", "States": {"State_1": PASS}})


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "api")


def refusal(call: Any, **request: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**request)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def events_of(machines: Machines, execution: str, **options: Any) -> list[int]:
    return [it["id"] for it in machines.client.get_execution_history(executionArn=execution, **options)["events"]]


def test_a_history_is_read_from_its_end(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_get_execution_history_reversed"""
    execution = machines.start({"State_1": PASS})
    machines.ended(execution)
    assert events_of(machines, execution, reverseOrder=False) == [1, 2, 3, 4]
    assert events_of(machines, execution, reverseOrder=True) == [4, 3, 2, 1]


def test_a_history_is_read_in_pages(machines: Machines) -> None:
    execution = machines.start({"State_1": PASS})
    machines.ended(execution)
    pages = machines.client.get_paginator("get_execution_history").paginate(
        executionArn=execution, reverseOrder=True, PaginationConfig={"PageSize": 3}
    )
    assert [[event["id"] for event in page["events"]] for page in pages] == [[4, 3, 2], [1]]
    refused = refusal(machines.client.get_execution_history, executionArn=execution, nextToken="none")
    assert refused == ("InvalidToken", "Invalid Token: 'Invalid token'")


def test_a_history_without_its_data_has_neither_input_nor_output(machines: Machines) -> None:
    execution = machines.start({"State_1": PASS})
    machines.ended(execution)
    events = machines.client.get_execution_history(executionArn=execution, includeExecutionData=False)["events"]
    assert "input" not in events[0]["executionStartedEventDetails"]
    assert "output" not in events[-1]["executionSucceededEventDetails"]


def test_the_same_state_machine_is_created_once(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_create_exact_duplicate_sm"""
    request = {"name": "exact", "definition": DEFINITION, "roleArn": machines.role}
    first, second = (machines.client.create_state_machine(**request) for _ in range(2))
    assert (first["stateMachineArn"], first["creationDate"]) == (second["stateMachineArn"], second["creationDate"])


def test_another_definition_under_a_name_in_use_is_refused_and_the_first_one_stays(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_create_duplicate_definition_format_sm and test_create_duplicate_sm_name"""
    arn = machines.client.create_state_machine(name="used", definition=DEFINITION, roleArn=machines.role)[
        "stateMachineArn"
    ]
    for other in (json.dumps(json.loads(DEFINITION), indent=4), DEFINITION.replace("argument1", "argument2")):
        refused = refusal(machines.client.create_state_machine, name="used", definition=other, roleArn=machines.role)
        assert refused == ("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'")
    described = machines.client.describe_state_machine(stateMachineArn=arn)
    assert described["definition"] == DEFINITION
    assert described["loggingConfiguration"] == {"includeExecutionData": False, "level": "OFF"}


def test_an_update_has_a_revision_and_the_same_update_has_the_same_one(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_create_update_state_machine_same_parameters"""
    arn = machines.client.create_state_machine(name="revised", definition=DEFINITION, roleArn=machines.role)[
        "stateMachineArn"
    ]
    assert "revisionId" not in machines.client.describe_state_machine(stateMachineArn=arn)
    changed = DEFINITION.replace("argument1", "argument2")
    first, second = (
        machines.client.update_state_machine(stateMachineArn=arn, definition=changed)["revisionId"] for _ in range(2)
    )
    assert first == second == machines.client.describe_state_machine(stateMachineArn=arn)["revisionId"]
    assert machines.client.update_state_machine(stateMachineArn=arn, definition=DEFINITION)["revisionId"] != first


def test_an_execution_tells_the_definition_with_which_it_started(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_describe_state_machine_for_execution"""
    arn = machines.client.create_state_machine(name="started", definition=DEFINITION, roleArn=machines.role)[
        "stateMachineArn"
    ]
    execution = machines.client.start_execution(stateMachineArn=arn)["executionArn"]
    machines.client.update_state_machine(stateMachineArn=arn, definition=DEFINITION.replace("argument1", "later"))
    described = machines.client.describe_state_machine_for_execution(executionArn=execution)
    assert described["definition"] == DEFINITION
    assert described["updateDate"]
    assert "creationDate" not in described


def test_the_variables_that_states_read_are_told(machines: Machines) -> None:
    """test_sfn_api_variable_references.py::test_base_variable_references_in_assign_templates"""
    states = {
        "Set": {"Type": "Pass", "Assign": {"name": 1}, "Next": "Read"},
        "Read": {"Type": "Pass", "Assign": {"other.$": "$name"}, "End": True},
    }
    described = machines.client.describe_state_machine(stateMachineArn=machines.create(states))
    assert described["variableReferences"] == {"Read": ["name"]}


@pytest.mark.parametrize("logging", [{"level": "ALL"}, {"level": "ALL", "destinations": []}])
def test_a_log_level_needs_a_destination(machines: Machines, logging: dict[str, Any]) -> None:
    """test_sfn_api_logs.py::TestSnfApiLogs::test_invalid_logging_configuration"""
    assert refusal(
        machines.client.create_state_machine,
        name="logged",
        definition=DEFINITION,
        roleArn=machines.role,
        loggingConfiguration=logging,
    ) == (
        "InvalidLoggingConfiguration",
        "Invalid Logging Configuration: Must specify exactly one Log Destination.",
    )


def test_what_is_no_arn_is_refused_as_one(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_describe_invalid_arn_sm, test_describe_execution_invalid_arn"""
    refused = refusal(machines.client.describe_state_machine, stateMachineArn="not_a_valid_arn")
    assert refused == ("InvalidArn", "Invalid Arn: 'Invalid ARN prefix: not_a_valid_arn'")
    refused = refusal(machines.client.get_execution_history, executionArn="invalid_state_machine_arn")
    assert refused == ("InvalidArn", "Invalid Arn: 'Invalid ARN prefix: invalid_state_machine_arn'")


def test_an_update_of_nothing_is_refused(machines: Machines) -> None:
    """test_sfn_api.py::TestSnfApi::test_create_update_state_machine_base_update_none"""
    arn = machines.create({"State_1": PASS})
    assert refusal(machines.client.update_state_machine, stateMachineArn=arn)[0] == "MissingRequiredParameter"


SEND = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
WAITING = {"StartAt": "A", "States": {"A": {"Type": "Task", "Resource": SEND, "Parameters": {}, "End": True}}}
DOWNGRADE = {"StartAt": "Pass", "QueryLanguage": "JSONata", "States": {"Pass": {**PASS, "QueryLanguage": "JSONPath"}}}
NOT_JSON = '[Source: (String)"not a definition"; line: 1, column: 4]'


@pytest.mark.parametrize(
    ("definition", "kind", "diagnostics"),
    [
        (DEFINITION, "STANDARD", []),
        ('""', "STANDARD", [("SCHEMA_VALIDATION_FAILED", None, "Definition must be a valid JSON object")]),
        ("{}", "STANDARD", [("SCHEMA_VALIDATION_FAILED", "/", "These fields are required: [States, StartAt]")]),
        (
            '{"States": {}}',
            "EXPRESS",
            [("SCHEMA_VALIDATION_FAILED", "/", "These fields are required: [StartAt]")],
        ),
        (
            "not a definition",
            "STANDARD",
            [
                (
                    "INVALID_JSON_DESCRIPTION",
                    NOT_JSON,
                    "Unrecognized token 'not': was expecting (JSON String, Number, Array, Object or token 'null', 'true' "
                    f"or 'false')\n at {NOT_JSON}",
                )
            ],
        ),
        (
            json.dumps(WAITING),
            "EXPRESS",
            [
                (
                    "SCHEMA_VALIDATION_FAILED",
                    "/States/A/Resource",
                    "Express state machine does not support '.waitForTaskToken' service integration ",
                )
            ],
        ),
        (json.dumps(WAITING), "STANDARD", []),
        (
            json.dumps(DOWNGRADE),
            "STANDARD",
            [
                (
                    "SCHEMA_VALIDATION_FAILED",
                    "/States/Pass",
                    "'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine",
                )
            ],
        ),
    ],
)
def test_a_definition_is_validated_in_the_words_of_aws(
    machines: Machines, definition: str, kind: str, diagnostics: list[tuple[str, str | None, str]]
) -> None:
    """test_sfn_api_validation.py::TestSfnApiValidation"""
    validated = machines.client.validate_state_machine_definition(definition=definition, type=kind)
    assert validated["result"] == ("FAIL" if diagnostics else "OK")
    found = [(it["code"], it.get("location"), it["message"]) for it in validated["diagnostics"]]
    assert found == diagnostics
    assert {it["severity"] for it in validated["diagnostics"]} <= {"ERROR"}


def test_a_bad_definition_is_refused_at_creation(machines: Machines) -> None:
    """test_sfn_api.py::test_create_delete_invalid_sm, test_sfn_api_express.py::test_illegal_callbacks"""
    create, role = machines.client.create_state_machine, machines.role
    assert refusal(create, name="bad", definition='{"StartAt": "A"}', roleArn=role) == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: These fields are required: [States] at /'",
    )
    assert refusal(create, name="bad", definition=json.dumps(WAITING), roleArn=role, type="EXPRESS") == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: Express state machine does not support "
        "'.waitForTaskToken' service integration  at /States/A/Resource'",
    )


def test_a_transition_to_a_state_that_does_not_exist_is_refused_at_its_place(machines: Machines) -> None:
    """localstack/localstack 11978, serverless-operations/serverless-step-functions 250, floci-io/floci 2786"""

    def said(states: dict[str, Any], start: str = "A") -> list[tuple[str, str, str | None]]:
        definition = json.dumps({"StartAt": start, "States": states})
        found = machines.client.validate_state_machine_definition(definition=definition)["diagnostics"]
        return [(one["code"], one["message"], one.get("location")) for one in found]

    def missing(target: str, place: str) -> tuple[str, str, str]:
        return "MISSING_TRANSITION_TARGET", f"Missing 'Next' target: {target}", place

    def unreachable(name: str) -> tuple[str, str, str]:
        return "MISSING_TRANSITION_TARGET", f'State "{name}" is not reachable.', f"/States/{name}"

    endless = ("MISSING_END_STATE", "Workflow has no terminal state", None)
    end, to_b, to_a = {"Type": "Pass", "End": True}, {"Type": "Pass", "Next": "B"}, {"Type": "Pass", "Next": "A"}
    assert said({"pass1": {"Type": "Pass", "Next": "pass3"}, "pass2": end}, "pass1") == [
        missing("pass3", "/States/pass1/Next"),
        unreachable("pass2"),
    ]
    assert said({"run": end}, "own.run") == [missing("own.run", "/StartAt"), unreachable("run")]
    assert said({"A": to_b, "B": to_a}) == [endless]
    assert said({"A": to_b, "B": to_a, "C": to_a}) == [endless]
    assert said({"A": to_b, "B": to_a, "C": end}) == [unreachable("C")]
    assert said({"A": {"Type": "Pass", "Next": "NOPE"}}) == [missing("NOPE", "/States/A/Next"), endless]
    rule = {"Variable": "$.a", "IsPresent": True, "Next": "NOPE"}
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sagemaker:listTrainingJobs", "End": True}
    caught = {**task, "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "NOPE"}]}
    assert said({"A": {"Type": "Choice", "Choices": [rule], "Default": "NO"}, "T": caught})[:3] == [
        missing("NO", "/States/A/Default"),
        missing("NOPE", "/States/A/Choices[0]/Next"),
        missing("NOPE", "/States/T/Catch[0]/Next"),
    ]
    # The states of a branch are those of the branch alone.
    branch = {"StartAt": "B", "States": {"B": {**task, "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Out"}]}}}
    parallel = {"Type": "Parallel", "Branches": [branch], "Next": "Out"}
    assert said({"A": parallel, "Out": end}) == [missing("Out", "/States/A/Branches[0]/States/B/Catch[0]/Next")]
    create = machines.client.create_state_machine
    definition = json.dumps({"StartAt": "A", "States": {"A": to_b, "B": to_a}})
    assert refusal(create, name="endless", definition=definition, roleArn=machines.role) == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'MISSING_END_STATE: Workflow has no terminal state at null'",
    )


@pytest.mark.parametrize("depth", [1_000, 300_000])
def test_a_definition_of_nothing_but_nesting_is_refused(machines: Machines, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    code, _ = refusal(machines.client.create_state_machine, name="deep", definition=nested, roleArn=machines.role)
    assert code in {"InvalidDefinition", "ValidationException"}


def test_a_definition_cut_anywhere_is_refused_and_the_next_execution_runs(machines: Machines) -> None:
    for end in range(0, len(DEFINITION), 10):
        validated = machines.client.validate_state_machine_definition(definition=DEFINITION[:end] or " ")
        assert validated["result"] == "FAIL", DEFINITION[:end]
    for end in range(50, len(DEFINITION), 50):
        create = machines.client.create_state_machine
        code, message = refusal(create, name="cut", definition=DEFINITION[:end], roleArn=machines.role)
        assert (code, "INVALID_JSON_DESCRIPTION" in message) == ("InvalidDefinition", True)
    assert machines.output({"Only": {"Type": "Succeed"}}) == {}


def test_an_input_of_nothing_but_nesting_is_refused_and_the_next_execution_runs(
    machines: Machines, unprefixed: Any
) -> None:
    machine = machines.create({"Only": {"Type": "Succeed"}})
    for nested in ("[" * 262_144, "[" * 131_072 + "]" * 131_072, '{"a":' * 50_000):
        code, _ = refusal(machines.client.start_execution, stateMachineArn=machine, input=nested)
        assert code == "InvalidExecutionInput"
    for depth in (300, 600, 900):
        nested = "[" * depth + "]" * depth
        execution = machines.client.start_execution(stateMachineArn=machine, input=nested)["executionArn"]
        assert machines.ended(execution)["status"] in ("SUCCEEDED", "FAILED")
    nested = "[" * 100_000 + "]" * 100_000
    for call in (
        lambda: unprefixed.test_state(definition='{"Type": "Pass", "End": true}', input=nested),
        lambda: unprefixed.test_state(definition=nested),
        lambda: machines.running.client("events").test_event_pattern(EventPattern='{"a": ["b"]}', Event=nested),
    ):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert machines.output({"Only": {"Type": "Succeed"}}) == {}


@pytest.fixture(scope="module")
def unprefixed(machines: Machines) -> Any:
    """A client without the prefix "sync-" of the host, which no name server knows for an account on this machine."""
    return machines.running.client("stepfunctions", config=Config(inject_host_prefix=False))


def test_an_express_state_machine_runs_to_its_end_in_one_call(machines: Machines, unprefixed: Any) -> None:
    """test_sfn_api_express.py::TestSfnApiExpress::test_start_sync_execution"""
    arn = machines.client.create_state_machine(
        name="express", definition=DEFINITION, roleArn=machines.role, type="EXPRESS"
    )["stateMachineArn"]
    answer = unprefixed.start_sync_execution(stateMachineArn=arn, input="{}")
    assert (answer["status"], json.loads(answer["output"])) == ("SUCCEEDED", {"Arg1": "argument1"})
    billed = answer["billingDetails"]
    assert billed["billedMemoryUsedInMB"] == 64
    assert billed["billedDurationInMilliseconds"] in range(
        100, 100_000, 100
    )  # in hundreds, as long as this machine takes
    assert ":express:express:" in answer["executionArn"]
    refused = refusal(machines.client.describe_execution, executionArn=answer["executionArn"])
    assert refused == ("InvalidArn", "Invalid Arn: 'Resource type not valid in this context: express'")
    assert refusal(machines.client.list_executions, stateMachineArn=arn)[0] == "StateMachineTypeNotSupported"


def test_a_standard_state_machine_does_not_run_in_one_call(machines: Machines, unprefixed: Any) -> None:
    """test_sfn_api.py::TestSnfApi::test_start_sync_execution"""
    arn = machines.create({"State_1": PASS})
    assert refusal(unprefixed.start_sync_execution, stateMachineArn=arn) == (
        "StateMachineTypeNotSupported",
        "This operation is not supported by this type of state machine",
    )


@pytest.mark.parametrize(
    ("principal", "taken"), [("states.us-east-1.amazonaws.com", True), ("states.eu-west-1.amazonaws.com", False)]
)
def test_a_role_may_trust_the_regional_principal_of_its_region(running: Running, principal: str, taken: bool) -> None:
    """As the CDK writes it without feature flags: test_nested_statemachine_with_sync2 of LocalStack."""
    client = running.client("stepfunctions")
    definition = json.dumps({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}})
    name = principal.split(".")[1]
    given = {"name": name, "definition": definition, "roleArn": running.role(f"of-{name}", principal)}
    if taken:
        assert client.create_state_machine(**given)["stateMachineArn"].endswith(name)
    else:
        with pytest.raises(ClientError, match="nor the regional one is authorized to assume the provided role"):
            client.create_state_machine(**given)
