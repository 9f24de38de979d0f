"""All rules: importing this module fills the table that :mod:`.node` asks."""

from . import rules_attention as rules_attention
from . import rules_contributed as rules_contributed
from . import rules_elements as rules_elements
from . import rules_experts as rules_experts
from . import rules_indexing as rules_indexing
from . import rules_linear_attention as rules_linear_attention
from . import rules_movement as rules_movement
from . import rules_products as rules_products
from . import rules_quantized as rules_quantized
from . import rules_windows as rules_windows
