"""Tensors beyond what a device binds or allocates at once: what reads or computes them is done in parts.

A binding has a largest size, and so has a buffer.  A constant beyond either becomes *parts*, constants of neighbouring
rows with a binding of their own each; the bytes stay where they are.  What reads it is rewritten so that each part of a
result comes from parts that a kernel can bind:

* a product with a part of the columns of its weight gives these columns of the result; one with a part of the terms
  gives an addend of it;
* a reduction of a part is an operand of the reduction of all;
* a selection by indices reads the part that has the row: all parts are read at a clamped index, and one result counts.

Which part of an operand belongs to a part of a result follows row axes (:mod:`..row_axes`) up to the large constant.
Parts of equal extent of one constant are one value, so that tied embeddings share them.  Where no rule applies the node
stays as it is, and is refused for its large operand later.

The largest size of a declared dimension decides how many parts there are.  A part has the rows that a run leaves for it
(:func:`~.polynomial.between`), perhaps none: then there are no workgroups, or what is read of it is not used.

What is too large :mod:`.operands` knows, the ways to compute a node in parts are those of :mod:`.splits`, :mod:`.parts`
makes the parts, and :mod:`.division` is the rewrite; inputs and outputs of the model are those of :mod:`.ports`.
"""
