"""What several operators share: arithmetic (windows, positions, number codes), and decompositions (reductions, softmax,
attention) that name the nodes which they build. Defines no operator.
"""
