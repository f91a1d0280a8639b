"""Scoped signing keys: the limits of a user made from the template of the key that signed it.

Subjects of a template may hold `{{name()}}`, `{{subject()}}`, `{{account-name()}}`, `{{account-subject()}}`,
`{{tag(x)}}` and `{{account-tag(x)}}`. A tag stands for each of its values in turn, so one subject may become
many.

Rules: the user brings no limits of its own. The same function in one subject has the same value everywhere.
An allow entry that does not come out as a subject is left out, and a list that becomes empty so denies
everything; a deny entry that does not come out refuses the user. Expansion is bounded whatever the tags.
"""

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from edged.core.claims import AccountClaims, PermissionClaims, UserClaims, UserLimits, UserScope
from edged.core.jwt import ClaimsError
from edged.core.subjects import valid_subscription

SUBJECTS_EXPANDED_MAX: Final = 4096  # per list; beyond it the user is refused

_FUNCTION: Final = re.compile(r"\{\{([^}]+)\}\}")
_TAG: Final = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Names:
    """What the functions of a template stand for."""

    user: UserClaims
    account: AccountClaims

    def values(self, function: str) -> tuple[str, ...]:
        """The values of a function; none when a tag is not set. Raises for an unknown function."""
        user, account = self.user.token, self.account.token
        tag = _TAG.fullmatch(function)
        if tag is not None:
            prefix = tag[2].lower() + ":"
            tags = account.tags if tag[1].lower() == "account-tag" else user.tags
            return tuple(value[len(prefix) :] for value in tags if value.startswith(prefix))
        simple = {
            "name()": user.name,
            "subject()": user.subject,
            "account-name()": account.name,
            "account-subject()": user.issuer_account,
        }.get(function.lower())
        if simple is None:
            raise ClaimsError("a template of a signing key uses an unknown function")
        return (simple,)


def scoped_limits(scope: UserScope, user: UserClaims, account: AccountClaims) -> UserLimits:
    """The limits of a user that was signed by a key with this scope."""
    if user.token.issuer != scope.key:
        raise ClaimsError("the user was not signed by the scoped key")
    if user.limits != UserLimits():
        raise ClaimsError("a user of a scoped signing key has no limits of its own")
    names, template = _Names(user, account), scope.template.permissions
    publish_allow = _expand(template.publish_allow, names, queues=False, strict=False)
    publish_deny = _expand(template.publish_deny, names, queues=False, strict=True)
    subscribe_allow = _expand(template.subscribe_allow, names, queues=True, strict=False)
    subscribe_deny = _expand(template.subscribe_deny, names, queues=True, strict=True)
    # An empty allow list would mean that everything is allowed.
    if template.publish_allow and not publish_allow:
        publish_deny = (*publish_deny, ">")
    if template.subscribe_allow and not subscribe_allow:
        subscribe_deny = (*subscribe_deny, ">")
    permissions = PermissionClaims(
        publish_allow, publish_deny, subscribe_allow, subscribe_deny, template.responses
    )
    return replace(scope.template, permissions=permissions)


def _expand(entries: tuple[str, ...], names: _Names, *, queues: bool, strict: bool) -> tuple[str, ...]:
    if not any(_FUNCTION.search(entry) for entry in entries):
        return entries
    expanded: list[str] = []
    for entry in entries:
        functions = list(dict.fromkeys(_FUNCTION.findall(entry)))
        values = [names.values(function.strip()) for function in functions]
        if len(expanded) + math.prod(map(len, values)) > SUBJECTS_EXPANDED_MAX:
            raise ClaimsError("a template of a signing key expands to too many subjects")
        subjects = _substituted(entry, functions, values, queues)
        if strict and (None in subjects or not subjects):
            raise ClaimsError("a denied subject of a template does not come out as a subject")
        expanded.extend(subject for subject in subjects if subject is not None)
    return tuple(expanded)


def _substituted(
    entry: str, functions: list[str], values: list[tuple[str, ...]], queues: bool
) -> list[str | None]:
    """The entry with every choice of values; None for a choice that gives no subject."""
    subjects: list[str | None] = []
    for choice in itertools.product(*values):
        chosen = dict(zip(functions, choice, strict=True))
        subject = _FUNCTION.sub(lambda function, chosen=chosen: chosen[function[1]], entry)  # type: ignore[misc]
        # A blank in a value would turn "subject" into "subject queue" and so weaken what is denied.
        sound = all(value.split() == [value] for value in choice) and _is_entry(subject.split(), queues)
        subjects.append(subject if sound else None)
    return subjects


def _is_entry(words: Iterable[str], queues: bool) -> bool:
    parts = [word.encode() for word in words]
    return 1 <= len(parts) <= 1 + queues and all(map(valid_subscription, parts))
