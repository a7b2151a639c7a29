"""What each error code of librdkafka says about a message: the one table, from which the docs' table is made.

Refused is only what a broker or client says of *this* record. Whatever may have other causes is unknown: the message
is sent again, and one that fails so alone, while others are accepted, is set aside all the same (rule R10).
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from pillarbox.outcome import Outcome

REFUSED = {
    "MSG_SIZE_TOO_LARGE": "larger than the topic's or the client's limit",
    "INVALID_MSG_SIZE": "larger than the broker's limit",
    "RECORD_LIST_TOO_LARGE": "larger than a segment of the topic",
    "INVALID_RECORD": "the broker's validation failed (no key on a compacted topic, a schema, an interceptor)",
    "_INVALID_DIFFERENT_RECORD": "in one request with a record that was refused",
    "INVALID_TIMESTAMP": "its timestamp is out of the topic's range",
    "POLICY_VIOLATION": "a policy of the broker forbids it",
}
UNAVAILABLE = {
    "UNKNOWN_TOPIC_OR_PART": "the topic is missing: create it",
    "UNKNOWN_TOPIC_ID": "the topic is missing or was made anew",
    "_UNKNOWN_TOPIC": "the topic is missing: create it",
    "_UNKNOWN_PARTITION": "the partition is not known yet",
    "TOPIC_EXCEPTION": "the topic's name is not legal: change `topic`",
    "TOPIC_AUTHORIZATION_FAILED": "no right to write to the topic: grant WRITE",
    "CLUSTER_AUTHORIZATION_FAILED": "no right to write idempotently: grant IDEMPOTENT_WRITE or WRITE on a topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "no right to use the transactional id",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "the delegation token lacks a right",
    "DELEGATION_TOKEN_EXPIRED": "the delegation token has expired",
    "DELEGATION_TOKEN_NOT_FOUND": "the delegation token is not known",
    "SASL_AUTHENTICATION_FAILED": "user or password is wrong",
    "_AUTHENTICATION": "user, password or token is wrong",
    "UNSUPPORTED_SASL_MECHANISM": "the broker does not know `sasl.mechanism`",
    "ILLEGAL_SASL_STATE": "the broker expects another kind of login",
    "SECURITY_DISABLED": "the broker has no security features",
    "_SSL": "TLS could not be agreed on",
    "_RESOLVE": "a host name could not be resolved",
    "_ALL_BROKERS_DOWN": "no broker can be reached",
    "BROKER_NOT_AVAILABLE": "the broker is not available",
    "LEADER_NOT_AVAILABLE": "the partition has no leader",
    "NOT_LEADER_FOR_PARTITION": "the leader has just changed",
    "REPLICA_NOT_AVAILABLE": "a replica is not available",
    "NOT_ENOUGH_REPLICAS": "fewer replicas in sync than `min.insync.replicas`",
    "_ISR_INSUFF": "fewer replicas in sync than `min.insync.replicas`",
    "KAFKA_STORAGE_ERROR": "the broker's disk failed",
    "INVALID_REQUIRED_ACKS": "the broker refuses `acks`",
    "UNSUPPORTED_VERSION": "the broker is too old",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the topic's message format is too old for headers",
    "UNSUPPORTED_COMPRESSION_TYPE": "the broker does not know `compression.type`",
    "_UNSUPPORTED_FEATURE": "the broker lacks a feature (idempotent writes, headers)",
    "THROTTLING_QUOTA_EXCEEDED": "a quota is exceeded",
    "_QUEUE_FULL": "the client's queue is full",
}
UNKNOWN = {
    "_TRANSPORT": "the connection broke: it may have arrived",
    "_TIMED_OUT": "no answer in time: it may have arrived",
    "_MSG_TIMED_OUT": "no answer within `message.timeout.ms`: it may have arrived",
    "_TIMED_OUT_QUEUE": "not sent in time",
    "REQUEST_TIMED_OUT": "the replicas did not answer in time: it may be there",
    "NETWORK_EXCEPTION": "the broker's connection broke: it may be there",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "written, but not by `min.insync.replicas`",
    "_PURGE_QUEUE": "the session was hung up; a message put back for a retry ends so after it was sent",
    "_PURGE_INFLIGHT": "the session was hung up while it was on the wire",
    "_FATAL": "the session's producer has failed",
    "_GAPLESS_GUARANTEE": "something before it failed, so nothing behind that may be written",
    "_INCONSISTENT": "client and broker disagree about what was written",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "client and broker disagree about what was written",
    "DUPLICATE_SEQUENCE_NUMBER": "written before, says the broker",
    "UNKNOWN_PRODUCER_ID": "the broker has forgotten the producer",
    "INVALID_PRODUCER_EPOCH": "a newer producer has its id",
    "INVALID_PRODUCER_ID_MAPPING": "the broker has forgotten the producer",
    "_FENCED": "a newer producer has its id",
    "PRODUCER_FENCED": "a newer producer has its id",
    "INVALID_MSG": "damaged on the way",
    "_BAD_MSG": "the broker's answer could not be read",
    "INVALID_REQUEST": "the broker did not understand the request",
    "_DESTROY": "the session was hung up",
    "UNKNOWN": "the broker does not say what happened",
}
NOT_OF_A_MESSAGE = "no answer to a message"

Verdict = tuple[Outcome, str]


def _table() -> dict[int, Verdict]:
    table: dict[int, Verdict] = {}
    for code, name in _codes().items():
        if name in REFUSED:
            table[code] = (Outcome.REFUSED, REFUSED[name])
        elif name in UNAVAILABLE:
            table[code] = (Outcome.UNAVAILABLE, UNAVAILABLE[name])
        else:
            table[code] = (Outcome.UNKNOWN, UNKNOWN.get(name, NOT_OF_A_MESSAGE))
    return table


def _codes() -> dict[int, str]:
    """Every code this librdkafka knows, by number. An older one lacks some names of the tables above."""
    named = ((name, getattr(KafkaError, name)) for name in dir(KafkaError))
    return {code: name for name, code in named if isinstance(code, int) and code and name.strip("_").isupper()}


VERDICTS = _table()
PURGED = frozenset(code for code, name in _codes().items() if name in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"))


def verdict(code: int) -> Outcome:
    return VERDICTS[code][0] if code in VERDICTS else Outcome.UNKNOWN


def explained(code: int) -> str:
    """The code's name and what it means here."""
    name = _codes().get(code, str(code))
    reason = VERDICTS[code][1] if code in VERDICTS else NOT_OF_A_MESSAGE
    return f"{name}: {reason}"


def as_markdown() -> str:
    """The table of the docs, refused ones first."""
    lines = ["| code | name | outcome | because |", "|---|---|---|---|"]
    names = _codes()
    order = [Outcome.REFUSED, Outcome.UNAVAILABLE, Outcome.UNKNOWN]
    for code in sorted(
        names, key=lambda c: (VERDICTS[c][1] == NOT_OF_A_MESSAGE, order.index(VERDICTS[c][0]), names[c])
    ):
        outcome, reason = VERDICTS[code]
        if reason != NOT_OF_A_MESSAGE:
            lines.append(f"| {code} | `{names[code]}` | {outcome} | {reason} |")
    lines.append("| all others | | unknown | " + NOT_OF_A_MESSAGE + " |")
    return "\n".join(lines) + "\n"
