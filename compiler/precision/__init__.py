"""16-bit floats as a format of storage: which values are stored as halves, while arithmetic stays float32.

:mod:`.declared_halves` follows a file that declares float16 or bfloat16, but for tensors that reach beyond the type,
which :mod:`.wide_tensors` keeps in float32.  :mod:`.float16_storage` chooses for a float32 model
(``precision="float16"``).  The concepts are three:

* the :class:`~.exact_set.ExactSet` has the values of a graph that no magnitude makes a half: positions, integers, what
  decides.  ``InterfaceConstraints`` is the part of it that other stages of a program contribute.
* the :class:`~.observed_range.ObservedRange` has the magnitudes that a float32 run reached.  What no run can show
  follows from constants: :mod:`.constant_ranges` reads them, :mod:`.overflow_analysis` carries them through the graph.
* the :class:`~.float16_storage.StorageDecision` is what follows for one value, with the reason.

``StorableTypes`` belongs to neither way of choosing: both ask it whether the kernel of a group can store a type.  The
modules stay separate because each answers from a source of its own: the graph, a run, the constants, the kernels.
"""
