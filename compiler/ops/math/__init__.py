"""Code shared by several operators: arithmetic (windows, positions, number codes), and decompositions (reductions,
softmax, attention) that name the nodes which they build. Defines no operator.
"""
