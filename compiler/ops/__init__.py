"""The operators, a file per family.  Importing this package fills the registry."""

from . import activations as activations
from . import cast as cast
from . import comparison as comparison
from . import contributed as contributed
from . import convolution as convolution
from . import elementwise as elementwise
from . import generators as generators
from . import indexing as indexing
from . import matmul as matmul
from . import normalization as normalization
from . import norms as norms
from . import padding as padding
from . import pooling as pooling
from . import rearrange as rearrange
from . import reduce_operators as reduce_operators
from . import reduction as reduction
from . import relayout as relayout
from . import resize as resize
from . import sampling as sampling
from . import selection as selection
from . import shape as shape
from . import slicing as slicing
from . import softmax as softmax
from . import static_views as static_views
from . import symbolic as symbolic
from . import views as views
