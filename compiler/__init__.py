"""Compile an imported ONNX model to a :class:`~.plan.Plan`: dispatches of a few fused WGSL compute shaders."""
