"""Cases of the operators of the domain ``ai.onnx.ml``."""
