"""Names of the ports and dimensions of a decoder in the form that text is generated with.

:mod:`shaderloom.compiler.frontend.next_token` gives a model that form, and says what each of them is.
"""

from __future__ import annotations

IDS = "input_ids"
MASK = "attention_mask"  #: which positions are valid
POSITIONS = "position_ids"
ENDS = "sequence_ends"
LOGITS_ROWS = "logits_rows"
TOKEN = "token"
LOGITS = "logits"
#: The number of rows of a run whose logits are wanted
WANTED = "wanted"
#: Names of the rows of a cache: of one that a run extends in place, and of one that it returns longer
CAPACITY = "capacity"
PAST = "past"
#: What a decoder reads of an encoder, the flag that tells its first run from later ones, and the encoded rows
HIDDEN = "encoder_hidden_states"
HIDDEN_MASK = "encoder_attention_mask"
BRANCH = "use_cache_branch"
ENCODED = "encoded"
#: What is in the names of caches of an encoder's results: of optimum's exporter, and of onnxruntime-genai's
ENCODER_PARTS = (".encoder.", "_cross_")


def is_encoded(name: str) -> bool:
    """Tell whether a cache has the keys or values of an encoder's results, which no run extends."""
    return any(part in name for part in ENCODER_PARTS)
