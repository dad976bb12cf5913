"""Forms of texts that were asked for last, with what was worked out of them: clients ask for the same one again and again.

Called by `language_model`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Final, final

from tilewright.api.language.character_counts import CharacterCounts
from tilewright.api.language.constraints import TextForm
from tilewright.api.language.grammars import Shape
from tilewright.api.language.json_schemas import grammar_of
from tilewright.api.language.token_trees import TokenTree
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import Rank, fork_lock

_MOST: Final = 8
_MOST_LENGTH: Final = 1 << 18
"""Of a schema as JSON, in characters."""


@final
class FormStore:
    """The forms over one vocabulary.  Thread-safe; the forms are not."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer: Final[Tokenizer] = tokenizer
        self._tree: TokenTree | None = None
        self._characters: Final[dict[Shape, CharacterCounts | None]] = {}
        self._forms: Final[dict[str, TextForm]] = {}
        self._lock: Final[threading.RLock] = fork_lock(Rank.QUEUE)
        self._tree_lock: Final[threading.RLock] = fork_lock(Rank.QUEUE)

    def of_schema(self, schema: Mapping[str, object]) -> TextForm:
        """The texts that a JSON schema allows.  Raises: UserError for one that cannot be kept to."""
        try:
            key = json.dumps(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"the schema is no JSON: {error}", hint="what json.dumps takes is"
            ) from error
        if len(key) > _MOST_LENGTH:
            raise UserError(
                f"the schema has {len(key)} characters, expected at most {_MOST_LENGTH}",
                hint="a part that is used often is said once, in '$defs'",
            )
        with self._lock:
            found = self._forms.pop(key, None)
            if found is not None:
                self._forms[key] = found  # the last one is that of now
                return found
        # What takes long keeps nobody from the forms that are there.
        made = TextForm(
            self._tree_of_tokens(), *grammar_of(json.loads(key)), self._characters
        )
        with self._lock:
            found = self._forms.setdefault(key, made)
            if len(self._forms) > _MOST:
                del self._forms[next(iter(self._forms))]
            return found

    def _tree_of_tokens(self) -> TokenTree:
        with self._tree_lock:
            if self._tree is None:
                pieces = map(self._tokenizer.piece, range(len(self._tokenizer)))
                self._tree = TokenTree(pieces, self._tokenizer.vocabulary.ends)
            return self._tree
