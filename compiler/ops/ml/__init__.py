"""The operators of ai.onnx.ml whose operands are numbers: scalers and encoders, linear models, support vectors, trees.

Text, maps and float64 are left to the cpu provider.
"""
