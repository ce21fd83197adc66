"""parliament's findings on statements: `audit.py < [STATEMENT, ...]` prints [[finding, what it is about], ...] for each.

Runs in an environment of its own, of requirements-parliament.txt.
"""

import json
import sys

import parliament


def about(finding):
    """The actions that a finding is about, else its text."""
    if isinstance(finding.detail, list):
        return sorted({one["action"] for one in finding.detail})
    actions = finding.location.get("actions") if isinstance(finding.location, dict) else None
    return actions or [str(finding.detail)]


def findings(statement):
    policy = parliament.analyze_policy_string(
        json.dumps({"Version": "2012-10-17", "Statement": [statement]}), include_community_auditors=True
    )
    return [[finding.issue, text] for finding in policy.findings for text in about(finding)]


print(json.dumps([findings(statement) for statement in json.load(sys.stdin)]))
