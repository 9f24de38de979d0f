"""Random models drawn from the operator registry.

``forms``      what the standard and the registry say about an operator at an opset: operands, types, attributes
``source``     where decisions come from: hypothesis, or a seeded generator
``node``       one node: types, operands, attributes; rules are asked for what schemas do not say
``rules_*``    what operands and attributes of single operators must satisfy
``oracle``     what a node computes, by a trusted runtime, and how far rounding moves it
``growth``     nodes one after the other, inputs, initializers, outputs, a model
``computed``   operands of given elements that are computed from inputs, so that a model needs stages
``control``    If, Loop and Scan, whose bodies are grown like the graphs around them
``graphs``     whole graphs, for hypothesis and by seed
``comparison`` how near the results of a correct program are
"""
