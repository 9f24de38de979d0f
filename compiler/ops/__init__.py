"""The operators, a file per family.  Importing this package fills the registry."""

from . import generators as generators
from . import indexing as indexing
from . import padding as padding
from . import rearrange as rearrange
from . import shape as shape
from . import slicing as slicing
from . import symbolic as symbolic
from . import views as views
