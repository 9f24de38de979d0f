"""Run plans on a WebGPU device.  Knows neither the compiler nor onnx."""
