"""All mutations, in the order of the table in `docs/reliability.md`."""

from __future__ import annotations

from typing import Final

from tests.mutations.dispatch import DISPATCH
from tests.mutations.firing import FIRING
from tests.mutations.mutation import Mutation
from tests.mutations.presence import PRESENCE
from tests.mutations.store import STORE

ALL: Final[tuple[Mutation, ...]] = (*FIRING, *PRESENCE, *DISPATCH, *STORE)
