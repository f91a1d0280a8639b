"""Rules about the subjects of a stream: what it captures, how they are transformed and published again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edged.core import api_errors
from edged.core.api_errors import ApiFailure
from edged.core.gotext import quote
from edged.core.stream_config import StreamConfig
from edged.core.subjects import valid_subscription
from edged.core.transform_reasons import BAD_SUBJECT, mapping_reason, transform_reason

_API_SPACES = ("$JS.>", "$JSC.>", "$NRG.>")


def refusal(words: str) -> ApiFailure:
    """The failure for a configuration that cannot be."""
    return ApiFailure(api_errors.stream_invalid_config(words))


def is_valid_subject(subject: str) -> bool:
    return valid_subscription(subject.encode())


def is_literal(subject: str) -> bool:
    tokens = subject.split(".")
    return "*" not in tokens and ">" not in tokens


def collide(first: str, second: str) -> bool:
    """Whether a subject may match both. Unlike `subjects.overlaps` it is asked about subjects that may be
    invalid, an empty one among them, and then says what nats-server says: errors depend on it.
    """
    if first == second:
        return True
    if is_literal(first) or is_literal(second):
        if is_literal(first) and is_literal(second):
            return False
        return is_subset(first, second) if is_literal(first) else is_subset(second, first)
    ones, others = first.split("."), second.split(".")
    if len(ones) != len(others) and ">" not in (ones if len(ones) < len(others) else others):
        return False
    return all(
        one and other and (one == other or one[0] in "*>" or other[0] in "*>")
        for one, other in zip(ones, others, strict=False)
    )


def is_subset(subject: str, pattern: str) -> bool:
    """Whether the pattern covers the subject, with nats-server's answers for what is invalid."""
    given, wanted = subject.split("."), pattern.split(".")
    for position, want in enumerate(wanted):
        if position >= len(given) or not want:
            return False
        if want == ">":
            return True
        give = given[position]
        if not give or give == ">" or (give == "*" and want != "*"):
            return False
        if want[0] != "*" and give != want:
            return False
    return len(given) == len(wanted)


def overlaps_any(subjects: Iterable[str], others: Iterable[StreamConfig]) -> bool:
    """Whether another stream captures some of these subjects."""
    wanted = tuple(subjects)
    return any(collide(mine, theirs) for other in others for theirs in other.subjects for mine in wanted)


def with_subjects(config: StreamConfig) -> StreamConfig:
    """The configuration with subjects that can be; its name is its subject if it has nothing else."""
    if not config.subjects:
        if config.mirror is None and not config.sources:
            return replace(config, subjects=(config.name,))
        return config
    if config.mirror is not None:
        raise ApiFailure(api_errors.MIRROR_WITH_SUBJECTS)
    for position, subject in enumerate(config.subjects):
        if not is_valid_subject(subject):
            raise refusal("invalid subject")
        if subject in config.subjects[:position]:
            raise refusal("duplicate subjects detected")
        _check_reserved(config, subject)
        for other in config.subjects[position + 1 :]:
            if collide(other, subject):
                mine, theirs = quote(subject.encode()), quote(other.encode())
                raise refusal(f"subject {mine} overlaps with {theirs}")
    return config


def _check_reserved(config: StreamConfig, subject: str) -> None:
    """Answers on subjects of the API would be taken for requests: there a stream may not acknowledge."""
    if subject == ">":
        if not config.no_ack:
            raise refusal("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            raise refusal("capturing all subjects requires replicas of 1")
    if config.no_ack:
        return
    if any(collide(subject, space) for space in _API_SPACES) and not is_subset(subject, "$JS.EVENT.>"):
        raise refusal("subjects that overlap with jetstream api require no-ack to be true")
    if collide(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        raise refusal("subjects that overlap with system api require no-ack to be true")


def check_subject_transform(config: StreamConfig) -> None:
    """That the transform of incoming subjects is one."""
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_valid_subject(transform.src):
        raise ApiFailure(api_errors.stream_transform_invalid_source(f"{BAD_SUBJECT} {transform.src}"))
    reason = mapping_reason(transform.src, transform.dest)
    if reason is not None:
        raise ApiFailure(api_errors.stream_transform_invalid_destination(reason))


def with_republish(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """The configuration with a republish that can be: it makes no cycle, and takes all if it does not say."""
    republish = config.republish
    if republish is None:
        return config
    if not republish.src:
        if pedantic:
            raise ApiFailure(api_errors.pedantic("republish source can not be empty"))
        republish = replace(republish, src=">")
    transform = config.subject_transform
    if (
        republish.src == republish.dest == ">"
        and transform is not None
        and config.subjects == (transform.src,)
    ):
        # All of it is transformed, so that publishing it again under the new subject makes no cycle.
        if pedantic:
            raise ApiFailure(api_errors.pedantic("implicit republish based on subject transform"))
        republish = replace(republish, src=transform.dest, dest=transform.dest)
    if any(collide(republish.dest, subject) for subject in config.subjects):
        raise refusal("stream configuration for republish destination forms a cycle")
    if transform_reason(republish.src, republish.dest) is not None:
        way = f"from '{republish.src}' to '{republish.dest}'"
        raise refusal(f"stream configuration for republish with transform {way} not valid")
    return replace(config, republish=republish)
