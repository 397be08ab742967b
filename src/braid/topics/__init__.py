"""The embedded topic store: a directory, no server (docs/files-and-topics.md)."""

from braid.topics.commit import StageWriter, StageWriters, append, clean_staging, publish, stage, stage_path
from braid.topics.envelope import ENVELOPE, WINDOW, format_envelope, parse_envelope
from braid.topics.files import check_name, check_new_name
from braid.topics.lock import StoreLock, holder
from braid.topics.log import Topic
from braid.topics.reading import read_positions, read_records
from braid.topics.segments import Staged
from braid.topics.store import TopicStore

__all__ = [
    "ENVELOPE",
    "WINDOW",
    "StageWriter",
    "StageWriters",
    "Staged",
    "StoreLock",
    "Topic",
    "TopicStore",
    "append",
    "check_name",
    "check_new_name",
    "clean_staging",
    "format_envelope",
    "holder",
    "parse_envelope",
    "publish",
    "read_positions",
    "read_records",
    "stage",
    "stage_path",
]
