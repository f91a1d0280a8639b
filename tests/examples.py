"""How many examples Hypothesis tries where its usual number is not the right one.

Rules: a test says how many it wants in a full run. A profile with fewer examples (see conftest.py) gets the
same share of them: a number given to `settings` itself would hold whatever the profile says.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_USUAL: Final = 100


def examples(count: int) -> int:
    """That many under the usual profile, and in proportion under others. To be called at import."""
    return max(1, count * settings.default.max_examples // _USUAL)
