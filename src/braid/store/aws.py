"""Where AWS's own tools have a user's settings from, as far as obstore does not look there: profiles.

In: the environment, `~/.aws/credentials` and `~/.aws/config`. Out: keys, region, endpoint; nothing where the
environment has them or there is no profile.
Rule: the environment goes before a profile. A profile whose keys another program must fetch is refused, with what makes
them known. No line of these files is shown.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping

from braid.errors import BraidError

_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_ELSEWHERE = (  # says who the user is, and obstore reads it
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What a client is made with besides what obstore finds."""
    name = environment.get("AWS_PROFILE", "")
    keys = _section(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials", name or "default")
    rest = _section(environment, "AWS_CONFIG_FILE", "config", f"profile {name}" if name else "default")
    if name and keys is None and rest is None:
        raise BraidError(f"there is no AWS profile {name}", "AWS_PROFILE names one of ~/.aws/config")
    both = {**(rest or {}), **(keys or {})}
    found = {}
    if not any(environment.get(x) for x in _ELSEWHERE):
        found = {ours: both[theirs] for theirs, ours in _KEYS.items() if both.get(theirs)}
        if name and "access_key_id" not in found:
            hint = f'eval "$(aws configure export-credentials --profile {name} --format env)"'
            raise BraidError(f"the AWS profile {name} has no keys of its own", hint)
    if both.get("region") and not any(environment.get(x) for x in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        found["region"] = both["region"]
    if both.get("endpoint_url") and not any(x.startswith("AWS_ENDPOINT") for x in environment):
        found["endpoint"] = both["endpoint_url"]
    return found


def _section(environment: Mapping[str, str], variable: str, file: str, name: str) -> dict[str, str] | None:
    path = environment.get(variable) or os.path.join(environment.get("HOME", ""), ".aws", file)
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        raise BraidError(f"{path} cannot be read", "it is not as AWS's tools write it") from None
    if name == "profile default" and not parser.has_section(name):
        name = "default"
    return dict(parser[name]) if parser.has_section(name) else None
