"""The operators, one :class:`~.registry.OpDef` each: ai.onnx in :mod:`.onnx`, com.microsoft in :mod:`.microsoft`,
ai.onnx.ml in :mod:`.ml`, the compiler's own in :mod:`.internal`; :mod:`.math` has what several share, and defines none.
Each imports only those before it of math, internal, onnx, microsoft, ml; by name, a decomposition builds nodes of any.

Importing a module registers its operators; the registry imports the module of an operator when it is looked up.
"""
