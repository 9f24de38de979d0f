"""Kernel families of ai.onnx.ml: walks through decision trees, and probabilities of classes from those of pairs."""
