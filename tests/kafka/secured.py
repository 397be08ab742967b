"""A broker that asks who one is (SASL/PLAIN) and lets nobody do what was not granted.

In: names and passwords of users. Out: a broker of the test's own; the settings with which a user's client comes in.
Rule: the helpers of `clients.py` act on it as its administrator; everybody else needs `allow`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka import clients, kept
from kafka.broker import Broker, fetch

LISTENER = "listener.name.plaintext.plain.sasl.jaas.config"


def login(user: str, password: str) -> dict[str, str]:
    """A client's settings."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


@contextlib.contextmanager
def secured_broker(users: Mapping[str, str]) -> Iterator[Broker]:
    """A broker with these users, by name and password; they may do nothing yet."""
    fetch()
    secret = secrets.token_hex(8)
    known = " ".join(f'user_{name}="{password}"' for name, password in {**users, "admin": secret}.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        LISTENER: f'{module} required username="admin" password="{secret}" {known};',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # the controller's own listener knows no names
    }

    def make(folder: Path) -> Broker:
        made = Broker(folder, settings)
        made.admin_settings = login("admin", secret)
        return made

    with kept.own(make) as server:
        clients.LOGINS[server.address] = server.admin_settings
        try:
            yield server
        finally:
            del clients.LOGINS[server.address]


def allow(address: str, user: str, operation: str, kind: str, name: str, *, prefixed: bool = False) -> None:
    """Grants READ, WRITE, DESCRIBE, CREATE … on a TOPIC, GROUP or TRANSACTIONAL_ID of a name (or all that begin so)."""
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    resource, granted = ResourceType[kind], AclOperation[operation]
    rule = AclBinding(resource, name, pattern, f"User:{user}", "*", granted, AclPermissionType.ALLOW)
    client = clients.admin(address)
    for done in client.create_acls([rule]).values():
        done.result(clients.SECONDS)
