"""The option ``logits``: which form the logits of a decoder have."""

from __future__ import annotations

from .last_logits import take_last_logits
from .messages import ModelProto
from .next_token import choose_token


def apply_logits(proto: ModelProto, logits: str) -> None:
    """Give ``proto`` the form that ``logits`` asks for: "all" leaves it as it is.

    See :mod:`.last_logits` for "last", :mod:`.next_token` for "token" and "first-token".
    """
    if logits == "last":
        take_last_logits(proto)
    elif logits in ("token", "first-token"):
        choose_token(proto, is_first=logits == "first-token")
